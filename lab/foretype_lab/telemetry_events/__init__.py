"""How fast feedback is committed, and whether anything acknowledged is lost when the gateway is killed."""
