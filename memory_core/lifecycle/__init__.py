"""What happens to memories over time: extraction of waiting conversations, migration."""
