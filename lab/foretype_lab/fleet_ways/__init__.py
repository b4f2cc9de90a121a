"""What the ways to a replica of a fleet on Ray cost: past everything, through our gateway, HAProxy and Ray's own proxy."""
