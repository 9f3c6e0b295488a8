print("mediafs: not built yet")
