"""The playground: an editor in the browser beside the prompt that its suggestions come from."""
