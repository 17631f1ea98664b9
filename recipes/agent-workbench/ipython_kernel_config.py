c = get_config()  # noqa: F821
c.InteractiveShellApp.exec_files = ["/opt/jupyter/reseed.py"]
