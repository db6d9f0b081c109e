"""Software engineering: patches, tests of repositories, and how a repository's tests decide on a reward."""
