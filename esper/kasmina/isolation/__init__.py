"""What keeps seeds and host apart."""
