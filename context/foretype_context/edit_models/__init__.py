"""Models that predict the next edit: what they are asked, how their prompts are written, as data, and what is taken of their answers."""
