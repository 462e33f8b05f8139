"""What each job and run says by itself, before jobs compete: state of the run, request, and job class."""
