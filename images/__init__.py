"""Images: build contexts and their limits, ``.dockerignore``, identities, the image map, git ownership."""
