"""Where snippets of other files come from on the client's side: sources in threads of their own, asked for each question."""
