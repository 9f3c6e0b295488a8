/// The messages of mount-helper/PROTOCOL.md ("Messages"); `mount-helper/link.h` is their other spelling.
enum HelperMessage: UInt32 {
  case options = 1
  case input = 2
  case start = 3
  case mounted = 4
  case prepared = 16
  case ready = 17
  case log = 18

  /// The version that both ends must have.
  static let version: UInt32 = 1
  /// `type` and `value`.
  static let headerLength = 8
  /// The most a message may carry behind its header.
  static let payloadLimit = 8192
}
