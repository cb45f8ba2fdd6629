"""What a release takes beside the package: see RELEASING.md."""
