"""One request between workers: who is alive, who is asked, what is retried, what is lost."""
