"""Every test fails if it leaves something behind."""

pytest_plugins = ["danaus.testing.pytest_plugin"]
