"""What the engine carries from one cycle to the next. Without it the decisions are the same."""
