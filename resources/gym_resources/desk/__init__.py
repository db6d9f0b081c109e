"""A small shop, what its service desk may do with orders, and cases that its customers bring."""
