"""Our adapter on a public network: how rows are drawn, what learns, and the file that ships."""
