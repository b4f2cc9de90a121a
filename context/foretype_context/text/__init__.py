"""Text as editors hold it: lines, words, places, and what of it a terminal may be shown."""
