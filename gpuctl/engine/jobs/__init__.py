"""What each job and run says on its own, before jobs compete: state of the run, request, and job class."""
