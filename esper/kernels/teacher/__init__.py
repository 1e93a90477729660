"""Teachers of a distillation: weights from a file known by its digest, held in one of three modes, frozen."""
