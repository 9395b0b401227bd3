"""The commands of ``runebook``: each module declares its own and does what they say."""
