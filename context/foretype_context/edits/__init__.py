"""What the edits of a developer say of the next one: bursts, evidence, sites. Pure, on trees; silent where it is not sure."""
