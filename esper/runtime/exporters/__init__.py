"""What the global tier says, carried on to Prometheus, TensorBoard and files of JSON lines."""
