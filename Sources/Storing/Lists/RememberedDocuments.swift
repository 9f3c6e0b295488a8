import Base
import Glibc

/// What the store remembers of lists and folders that servers gave, one file for each URL (docs/STORE-FORMAT.md,
/// "Lists"). A file that is damaged, or of a later version, counts as none.
///
/// The list that an import took last stays beside the next one, as `NAME.taken`, until an import has taken that one,
/// too: what an import refuses, or a killed server never read, is not the last good copy.
package final class RememberedDocuments: Sendable {
  /// The folder's path.
  package let path: String
  /// Whether nothing was remembered when the store was opened, nor being written when a server was killed.
  package let wasEmpty: Bool
  /// The files of lists that no import has taken yet, and how many were placed before each.
  private let untaken = Lock<(files: [String: Int], count: Int)>(([:], 0))
  fileprivate static let takenSuffix = ".taken"
  /// The digits of a file's name.
  private static let nameLength = 32

  /// Creates the folder in the store, if it is not there.
  package init(in store: StoreFolder) throws(StoreError) {
    path = store.path + "/lists"
    do throws(Errno) {
      _ = try store.directory.makeFolder("lists", mode: 0o700)
      guard let status = try store.directory.status(of: "lists"), status.isFolder else { throw .notDirectory }
      // What a killed server was writing.
      let names = try store.directory.folder("lists").names()
      for name in names where name.hasSuffix(".new") { unlink(path + "/" + name) }
      for name in names where name.hasSuffix(Self.takenSuffix) { try Self.bringBack(path + "/" + name) }
      wasEmpty = names.isEmpty
    } catch {
      throw .file(error, "cannot create the folder \(path)")
    }
  }

  /// The list that was taken last takes the place of the next one.
  private static func bringBack(_ file: String) throws(Errno) {
    guard rename(file, String(file.dropLast(takenSuffix.count))) == 0 else { throw .current }
  }

  /// Lists that no import has taken yet.
  package var pending: [String: Int] { untaken.withLock { $0.files } }

  /// An import took the tree of the lists as they were when `pending` was asked for.
  package func took(_ pending: [String: Int]) {
    var isAny = false
    for (file, number) in pending {
      let isLast = untaken.withLock { untaken in
        guard untaken.files[file] == number else { return false }
        untaken.files[file] = nil
        return true
      }
      guard isLast else { continue }
      isAny = true
      unlink(file + Self.takenSuffix)
    }
    // If that fails, a power loss may bring the former lists back, until the servers are asked again.
    if isAny { try? Folder.open(path).sync() }
  }

  /// An import refused the lists: those that were taken last are back. Returns whether there are any.
  package func refused() throws(StoreError) -> Bool {
    let files = untaken.withLock { untaken in
      defer { untaken.files = [:] }
      return untaken.files.keys
    }
    do throws(Errno) {
      for file in files { try Self.bringBack(file + Self.takenSuffix) }
      if !files.isEmpty { try Folder.open(path).sync() }
    } catch {
      throw .file(error, "cannot bring a list back in \(path)")
    }
    return !files.isEmpty
  }

  /// Before another list takes the place of the one in `file`.
  fileprivate func keep(_ file: String) throws(Errno) {
    if link(file, file + Self.takenSuffix) != 0 {
      let error = Errno.current
      // The first one; or the one that is kept was taken, and the one in its place was not.
      if error == .notFound { return }
      if error != .exists { throw error }
    }
    untaken.withLock { $0 = ($0.files.merging([file: $0.count + 1]) { $1 }, $0.count + 1) }
  }

  /// Removes what is of none of `urls`, and neither came nor was one of them in the last `seconds`. What was one of
  /// them may go after half of that time.
  package func forget(allBut urls: some Sequence<String>, olderThan seconds: Double) throws(StoreError) {
    do throws(Errno) {
      let folder = try Folder.open(path)
      let oldest = Int64(time(nil)) - Int64(seconds)
      // By its times an import tells whether a list is another one: they change rarely, and not while it is new.
      let old = oldest + Int64(seconds / 2)
      for url in urls {
        let path = path(of: url)
        var status = stat()
        // Fails for those of which nothing is remembered: they are most.
        guard lstat(path, &status) == 0, Int64(status.st_mtim.tv_sec) <= old else { continue }
        utimensat(AT_FDCWD, path, nil, AT_SYMLINK_NOFOLLOW)
      }
      for name in try folder.names() where name.utf8.count == Self.nameLength {
        guard let status = try folder.status(of: name), Int64(status.st_mtim.tv_sec) <= oldest else { continue }
        if unlink(path + "/" + name) != 0, errno != ENOENT { throw .current }
      }
    } catch {
      throw .file(error, "cannot remove lists that are not named any more from \(path)")
    }
  }

  /// The path of the file for `url`.
  package func path(of url: String) -> String {
    path + "/" + name(of: url)
  }

  private func name(of url: String) -> String {
    // libcrypto has SHA-256, or the store's path could not have been computed either.
    let digest = (try? Digester.digest(of: url, .sha256)) ?? []
    return hexadecimal(digest.prefix(Self.nameLength / 2))
  }

  /// What is remembered of `url`, with the file at the start of the body; nil: nothing.
  /// Throws where that cannot be found out: what is remembered must not look as if it were gone.
  package func open(_ url: String) throws(Errno) -> (head: DocumentHead, file: OwnedDescriptor)? {
    try find(url, isWhole: true)
  }

  /// `isWhole`: reads all of it, to compare it with its digest.
  private func find(
    _ url: String, isWhole: Bool
  ) throws(Errno) -> (head: DocumentHead, file: OwnedDescriptor)? {
    do throws(Errno) {
      let file = try FileDescriptor.open(path(of: url), O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
      let status = try file.status()
      guard status.isPlainFile else { return nil }
      let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: DocumentHead.limit, alignment: 16)
      defer { buffer.deallocate() }
      let count = try file.readFully(at: 0, into: buffer)
      guard let found = DocumentHead.decode(Array(buffer[..<count])), found.head.url == url,
        Int64(found.bodyAt) + found.length == Int64(status.st_size),
        try isWhole
          ? matches(file.rawValue, found, UnsafeRawBufferPointer(rebasing: buffer[..<found.digested])) : true,
        lseek(file.rawValue, off_t(found.bodyAt), SEEK_SET) == off_t(found.bodyAt)
      else { return nil }
      return (found.head, try OwnedDescriptor(file))
    } catch .notFound {
      return nil
    }
  }

  /// Whether the digest is that of the body and of `text`, the fields before it.
  private func matches(
    _ file: Int32, _ found: DocumentHead.Decoded, _ text: UnsafeRawBufferPointer
  ) throws(Errno) -> Bool {
    do throws(StoreError) {
      var digester = try Digester(.sha256)
      let piece = PieceBuffer()
      let end = Int64(found.bodyAt) + found.length
      var position = Int64(found.bodyAt)
      while position < end {
        let bytes = try piece.read(file, at: position, limit: end)
        digester.update(bytes)
        position += Int64(bytes.count)
      }
      digester.update(text)
      return hexadecimal(digester.finish()) == found.digest
    } catch {
      if case .io(let error) = error.kind { throw error }
      return false
    }
  }

  /// The head of what is remembered of `url`; the body may be damaged.
  package func head(of url: String) -> DocumentHead? {
    do throws(Errno) { return try find(url, isWhole: false)?.head } catch {
      Log.warning("cannot read what is remembered of a list: \(error)")
      return nil
    }
  }

  /// Begins the file of an answer.
  package func begin(_ head: DocumentHead) throws(StoreError) -> DocumentWriter {
    try DocumentWriter(head, path: path(of: head.url), documents: self)
  }
}

/// A descriptor that one owner takes.
package final class OwnedDescriptor: Sendable {
  private let file: Lock<Int32>

  package init(_ file: consuming FileDescriptor) throws(Errno) {
    // A descriptor has one owner: this one closes what nobody took.
    let copy = try retrying { fcntl(file.rawValue, F_DUPFD_CLOEXEC, 3) }
    self.file = Lock(copy)
  }

  deinit { if let left = take() { _ = consume left } }

  /// The descriptor; nil if it was taken before.
  package func take() -> FileDescriptor? {
    let number = file.withLock { number in
      defer { number = -1 }
      return number
    }
    return number < 0 ? nil : FileDescriptor(owning: number)
  }
}

/// Writes an answer beside what is remembered, and puts it in its place once somebody has read it and found it good.
/// One thread uses it.
package final class DocumentWriter {
  /// What is remembered once it is placed.
  package var head: DocumentHead
  /// Where the body is until then.
  package let path: String
  private let place: String
  private let file: FileDescriptor
  private let start: Int64
  private var length: Int64 = 0
  private var isPlaced = false
  private let documents: RememberedDocuments
  private var digester: Digester?

  fileprivate init(_ head: DocumentHead, path: String, documents: RememberedDocuments) throws(StoreError) {
    self.head = head
    self.documents = documents
    place = path
    self.path = path + ".new"
    let text = Array((head.encoded(length: 0) + DocumentHead.end(digest: nil)).utf8)
    start = Int64(text.count)
    digester = try Digester(.sha256)
    do throws(Errno) {
      if text.count > DocumentHead.limit { throw .invalid }
      file = try FileDescriptor.open(self.path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, mode: 0o600)
      try text.span.withUnsafeBytes { bytes throws(Errno) in try file.writeFully(bytes, at: 0) }
    } catch {
      throw .file(error, "cannot remember a list in \(documents.path)")
    }
  }

  deinit { if !isPlaced { unlink(path) } }

  /// Appends to the body.
  package func write(_ bytes: UnsafeRawBufferPointer) throws(StoreError) {
    do throws(Errno) { try file.writeFully(bytes, at: start + length) } catch {
      throw .file(error, "cannot remember a list in \(documents.path)")
    }
    digester?.update(bytes)
    length += Int64(bytes.count)
  }

  /// The body, for whoever judges it.
  package func body() -> FileDescriptor? {
    guard let body = try? FileDescriptor.open(path, O_RDONLY), lseek(body.rawValue, off_t(start), SEEK_SET) >= 0 else {
      return nil
    }
    return body
  }

  /// Puts it in its place, unless that has the same. Returns whether it is another one.
  package func place(names: Int) throws(StoreError) -> Bool {
    head.names = names
    do throws(Errno) {
      if let (known, file) = try documents.open(head.url), known.kind == head.kind, known.finalURL == head.finalURL,
        known.etag == head.etag,
        let file = file.take(), try isSame(file)
      {
        return false
      }
      let fields = head.encoded(length: length)
      Array(fields.utf8).withUnsafeBytes { digester?.update($0) }
      let text = Array((fields + DocumentHead.end(digest: digester.take()?.finish())).utf8)
      try text.span.withUnsafeBytes { bytes throws(Errno) in try file.writeFully(bytes, at: 0) }
      try file.sync()
      if head.kind == .list { try documents.keep(place) }
      guard rename(path, place) == 0 else { throw Errno.current }
      isPlaced = true
      try Folder.open(documents.path).sync()
      return true
    } catch {
      throw .file(error, "cannot remember a list in \(documents.path)")
    }
  }

  /// Whether the body is that of `other`, which is at the start of its body.
  private func isSame(_ other: borrowing FileDescriptor) throws(Errno) -> Bool {
    let from = Int64(lseek(other.rawValue, 0, SEEK_CUR))
    guard Int64(try other.status().st_size) - from == length else { return false }
    let buffers = UnsafeMutableRawBufferPointer.allocate(byteCount: 128 << 10, alignment: 16)
    defer { buffers.deallocate() }
    let (mine, others) = (
      UnsafeMutableRawBufferPointer(rebasing: buffers[..<(64 << 10)]),
      UnsafeMutableRawBufferPointer(rebasing: buffers[(64 << 10)...])
    )
    var position: Int64 = 0
    while position < length {
      let count = try file.readFully(at: start + position, into: mine)
      guard count > 0, try other.readFully(at: from + position, into: others) == count,
        mine[..<count].elementsEqual(others[..<count])
      else { return false }
      position += Int64(count)
    }
    return true
  }
}
