/// The messages of mount-helper/PROTOCOL.md ("Messages"). `mount-helper/link.h` declares them for the helper.
enum HelperMessage: UInt32 {
  case options = 1
  case input = 2
  case start = 3
  case mounted = 4
  case session = 5
  case notices = 6
  case verdict = 7
  case kept = 8
  case backing = 9
  case held = 10
  case waking = 11
  case service = 12
  case opened = 13
  case prepared = 16
  case ready = 17
  case log = 18
  case upgrade = 19
  case failed = 20
  case hold = 21
  case state = 22
  case open = 23

  /// The protocol version, which both ends must share.
  static let version: UInt32 = 5
  /// The length of `type` and `value`.
  static let headerLength = 8
  /// The longest payload of a message, after its header.
  static let payloadLimit = 8192
  /// The exit status of a server that ended for an upgrade.
  static let handedOver: Int32 = 4
}
