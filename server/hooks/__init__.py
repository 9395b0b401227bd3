"""Answers to hosts' hooks: context when a session starts and with each prompt, and conversations kept at its end."""
