/// Gathers files of which only the sizes are known into one reply. A line for each file would be most of the work of a
/// `status` of a large mount.
struct RemoteFiles {
  private var paths: [String] = []
  private var sizes: [Int64?] = []
  /// The most bytes that they take in a message, if every byte of a path is escaped.
  private var bytes = 0

  /// Adds a file; false if the message has no room for it.
  mutating func add(_ file: FileStatus) -> Bool {
    let length = 6 * file.path.utf8.count + 32
    guard bytes + length < ControlLimits.message - 1024 else { return false }
    bytes += length
    paths.append(file.path)
    sizes.append(file.size)
    return true
  }

  /// The reply with the files added so far, which this removes; nil if there are none.
  mutating func take() -> ControlReply? {
    if paths.isEmpty { return nil }
    defer { self = RemoteFiles() }
    var reply = ControlReply(.remote)
    reply.paths = paths
    if sizes.contains(where: { $0 != nil }) { reply.sizes = sizes }
    return reply
  }

  /// The files of a reply; nil if the reply is malformed.
  static func files(of reply: ControlReply) -> [FileStatus]? {
    guard let paths = reply.paths, reply.sizes?.count ?? paths.count == paths.count else { return nil }
    let sizes = reply.sizes ?? [Int64?](repeating: nil, count: paths.count)
    return zip(paths, sizes).map { FileStatus(path: $0, size: $1, waitsFor: .reader) }
  }
}
