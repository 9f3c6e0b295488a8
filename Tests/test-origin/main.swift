print("test-origin: not built yet")
