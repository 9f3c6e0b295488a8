import Base

extension FleetKey {
  /// The environment variable with the fleet's key.
  package static let variable = "MEDIAFS_FLEET_KEY"
  /// The fewest bytes of a fleet's key: what is shorter can be guessed.
  package static let least = 16

  /// The key in a file, or else in the environment. What ends a line at its end is not a part of it.
  package static func find(file: String?, _ environment: [String: String]) throws(StoreSetupError) -> FleetKey {
    let text: String
    if let file {
      text = try read(file)
    } else if let given = environment[variable], !given.isEmpty {
      text = given
    } else {
      throw StoreSetupError(
        description: "the fleet's key is missing: write some random text to a file, the same for all machines, and "
          + "name it with --share-key FILE, or set \(variable)")
    }
    var bytes = Array(text.utf8)
    while let last = bytes.last, last == 0x0A || last == 0x0D { bytes.removeLast() }
    guard bytes.count >= least else {
      throw StoreSetupError(
        description: "the fleet's key in \(file ?? variable) has \(bytes.count) bytes, and can be guessed: take "
          + "\(least) or more, such as `openssl rand -hex 32` prints")
    }
    return FleetKey(bytes)
  }

  private static func read(_ file: String) throws(StoreSetupError) -> String {
    let text: String?
    do throws(PlainFileError) { text = try StoreAccount.readProfiles(file) } catch {
      throw StoreSetupError(description: "cannot read the fleet's key from \(file): \(error)")
    }
    guard let text else {
      throw StoreSetupError(description: "there is no file \(file), which is to have the fleet's key")
    }
    return text
  }
}
