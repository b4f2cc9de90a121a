"""`foretype use`: a good public model in every editor, by one command.

The catalogue is data (`catalogue.toml`). What is chosen is tried in a gateway of its own before the private gateway gets it, so
that whatever fails leaves suggestions as they were.
"""
