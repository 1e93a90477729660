"""The validation suite: arms of one run beside each other, with a control, and figures that say what they are."""
