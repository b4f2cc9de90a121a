"""Text as editors hold it: documents, lines, words, and what of it a terminal may be shown."""
