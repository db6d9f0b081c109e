"""Searching and reading the web: back ends of search, pages as text, filings of the SEC."""
