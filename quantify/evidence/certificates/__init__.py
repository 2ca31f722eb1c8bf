"""Certificates of counts by splitting boxes: written to files, read back, and checked by arithmetic of their own."""
