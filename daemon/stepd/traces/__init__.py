"""What TensorFlow wrote of a traced step, read into core's values. It knows no daemon, no command line and no TensorFlow."""
