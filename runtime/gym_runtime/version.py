"""The version of the package, which manifests, pages and requests to hubs carry."""

VERSION = "0.1.0"
