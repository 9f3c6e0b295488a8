import Base
import Manifest
import Reading

/// What a server must mount and how: the options of `mediafs mount`, checked, with absolute paths.
///
/// The server gets it in a file in the encoding of mount-helper/PROTOCOL.md ("The options"), never in arguments: its
/// headers may be secret.
package struct MountRequest: Sendable, Equatable {
  /// The mountpoint: absolute, without symbolic links.
  package var mountpoint: String
  /// The manifest's absolute path, its URL, or `-`: then ``HelperLink/Start/input`` has it.
  package var manifest: String
  /// More lists, each below a folder of its own. With them, `manifest` may be empty.
  package var named: [NamedList] = []
  /// The manifest's format; nil to recognize it.
  package var format: ListFormat?
  /// The base URL for relative URLs of a list; nil for none.
  package var baseURL: String?
  /// Whether an error in the manifest prevents the mount.
  package var strict = false
  /// Where downloaded data is stored, and how much of it.
  package var storage = Storage()
  /// What is downloaded, and how fast.
  package var downloads = Downloads()
  /// What requests contain.
  package var origins = Origins()
  /// The fleet through which it shares.
  package var share = Share()
  /// Whether the server runs in the foreground, with the command's stderr as its default log.
  package var foreground = false
  /// What the server logs, and where.
  package var log = Logging()
  /// The file to which the server writes its numbers; nil for none.
  package var metricsFile: String?
  /// The program that is started for each completed file: its path or name, and its arguments; nil for none.
  package var onComplete: [String]?
  /// The programs that give links to entries which name them.
  package var resolvers: [Resolver] = []
  /// The resolver of the entries that name none; nil: they have their own links.
  package var resolve: String?
  /// How long a thread of the server may hang until the mount helper replaces the server, in seconds; 0: for ever.
  package var watchdog = 10.0
  /// Who owns the files, and who may use them.
  package var access = Access()
  /// What the server has of lists and folders of servers, once the store is open; not in the encoded form.
  var lists: ListAccess?

  /// Where downloaded data is stored, and how much of it.
  package struct Storage: Sendable, Equatable {
    /// The store's folder; nil for the mountpoint's default.
    package var store: String?
    /// The library's folder; nil for the one in the store.
    package var library: String?
    /// The limit on what the store has on disk, in bytes; nil for the store's own.
    package var maxSize: Int64?
    /// What may go to keep the limits.
    package var evicts = ReadingOptions().limits.evicts
    /// How long what nobody uses is kept, in seconds; nil: no limit.
    package var maxAge: Double?
    /// How much space must stay free on the store's disk, in bytes.
    package var minFree = ReadingOptions().minimumFree
  }

  /// What is downloaded, and how fast.
  package struct Downloads: Sendable, Equatable {
    /// When the rest of a file is downloaded.
    package var continuation = ReadingOptions().continuation
    /// Of how many files the beginning is downloaded while the one before them is being played.
    package var next = ReadingOptions().next
    /// How long a read may wait without receiving data, in seconds.
    package var timeout = ReadingOptions().timeout
    /// How long an origin's answer counts when a file is opened, in seconds.
    package var fresh = ReadingOptions().fresh
    /// The limit on the download rate, in bytes per second; nil for none.
    package var limitRate: Int64?
    /// How many HTTP/1.1 connections a host may have; nil for the default.
    package var maxConnections: Int?
  }

  /// What requests contain.
  package struct Origins: Sendable, Equatable {
    /// Header fields for every request to an entry's home origin. Secret.
    package var headers: [HTTPHeader] = []
    /// A file of trusted certificates (PEM).
    package var certificateFile: String?
    /// A netrc file with credentials; nil for ~/.netrc.
    package var netrcFile: String?
  }

  /// The fleet through which a mount shares what it downloads.
  package struct Share: Sendable, Equatable {
    /// What a mount does there.
    package enum Mode: String, Sendable, CaseIterable {
      case rw, ro
    }

    /// `s3://bucket/prefix`; nil: it shares with nobody.
    package var place: String?
    /// The object store's URL; nil for the environment's, the profile's, or AWS.
    package var endpoint: String?
    /// The store's region; nil for the environment's or the profile's.
    package var region: String?
    package var mode = Mode.rw
    /// The most bytes a second that go up; nil for no limit.
    package var uploadLimit: Int64?
    /// The file with the fleet's key; nil for the environment's.
    package var keyFile: String?
  }

  /// What the server logs, and where.
  package struct Logging: Sendable, Equatable {
    /// The log file; nil for stderr in the foreground, otherwise for `mediafs.log` in the store.
    package var file: String?
    /// 0, or how often `-v` was given.
    package var verbosity = 0
  }

  /// Who owns the files, and who may use them.
  package struct Access: Sendable, Equatable {
    /// Who owns the files; nil for the mount's owner.
    package var uid: UInt32?
    /// The files' group; nil for the mount owner's group.
    package var gid: UInt32?
    /// Permission bits to remove; nil for none.
    package var umask: UInt32?
    /// Whether other users may use the mount.
    package var allowOther = false
  }

  /// A mount of `manifest` at `mountpoint` with the defaults.
  package init(mountpoint: String, manifest: String) {
    self.mountpoint = mountpoint
    self.manifest = manifest
  }

  /// Whether it has programs, which a launcher starts.
  package var needsLauncher: Bool { onComplete != nil || !resolvers.isEmpty }
  /// Whether the manifest comes from standard input.
  package var readsStandardInput: Bool { manifest == "-" }
  /// Whether the list at the top is a file, or standard input.
  var opensList: Bool { readsStandardInput || manifest.hasPrefix("/") }
  /// All lists, the one without a folder first.
  package var allLists: [NamedList] {
    (manifest.isEmpty ? [] : [NamedList(folder: "", place: manifest)]) + named
  }
  /// The lists that are files.
  var fileLists: [NamedList] { allLists.filter { $0.place.hasPrefix("/") } }
  /// What messages call the lists: no secret of their URLs is in it.
  package var listName: String { allLists.map(\.shown).joined(separator: ", ") }
}

/// A list, and the folder of the mount that it shows in.
package struct NamedList: Sendable, Equatable {
  /// The folder's name; empty for the top.
  package var folder: String
  /// Its absolute path, its URL, or `-`.
  package var place: String

  init(folder: String, place: String) { (self.folder, self.place) = (folder, place) }

  /// What `--manifest` takes: `PLACE` or `NAME=PLACE`. A path with an equals sign has a slash before that (`./a=b`), as
  /// every URL has.
  package init(_ text: String) {
    let bytes = text.utf8
    guard let equals = bytes.firstIndex(of: 0x3D), !bytes[..<equals].contains(0x2F) else {
      self.init(folder: "", place: text)
      return
    }
    self.init(folder: String(text[..<equals]), place: String(text[text.index(after: equals)...]))
  }

  /// Whether its folder, if it has one, can have that name, and the list one.
  package var isNamedWell: Bool {
    folder.isEmpty || !place.isEmpty && place != "-" && ManifestReader.isFolderName(folder)
  }

  /// Why these lists cannot show in one mount; nil: they can.
  package static func conflict(of lists: [NamedList]) -> String? {
    for (index, list) in lists.enumerated() {
      guard let first = lists[..<index].first(where: { $0.folder.utf8.elementsEqual(list.folder.utf8) }) else {
        continue
      }
      let both = "\(first.shown) and \(list.shown)"
      return list.folder.isEmpty
        ? "two lists have no name: give each but one its folder (NAME=FILE): \(both)"
        : "two lists want the folder \(list.folder): \(both)"
    }
    return nil
  }

  /// Its URL; nil for a file.
  package var url: String? { place.hasPrefix("http://") || place.hasPrefix("https://") ? place : nil }
  /// What messages call it: no secret of its URL is in it.
  package var shown: String { place == "-" ? "standard input" : url.map { Log.redacted(url: $0) } ?? place }
  /// The same as a name by whose end a format may be known.
  var formatName: String { url == nil ? shown : String(shown.prefix { $0 != "?" }) }
  fileprivate var isAbsolute: Bool { place.hasPrefix("/") || url != nil || place == "-" && folder.isEmpty }

  /// The file that has it.
  func path(_ lists: ListAccess?) -> String { url.flatMap { lists?.documents.remembered.path(of: $0) } ?? place }
}

/// A program that gives links: the name that lists use, and its path or name with its arguments.
package struct Resolver: Sendable, Equatable {
  package var name: String
  package var words: [String]
}

extension MountRequest {
  private static let magic = Array("mediafs".utf8) + [1]

  /// The only key that is not an option: on the command line it is an operand.
  private static let mountpointKey = "mountpoint"

  /// The maximum size of an encoded request, in bytes.
  package static let limit = 16 << 20

  /// The request in the encoded form.
  package func encoded() -> [UInt8] {
    var writer = Writer(bytes: Self.magic)
    writer.put(Self.mountpointKey, mountpoint)
    for option in MountOption.all {
      for value in option.encoded(self) { writer.put(option.name, value) }
    }
    return writer.bytes
  }

  /// Decodes what the file has in it, an unnamed one that the mount helper passes on.
  package init(reading file: borrowing FileDescriptor) throws(ServerError) {
    let bytes: [UInt8]
    do throws(Errno) {
      let size = Int(try file.status().st_size)
      guard size <= Self.limit else { throw .invalid }
      let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 1)
      defer { buffer.deallocate() }
      bytes = Array(buffer[..<(try file.readFully(at: 0, into: buffer))])
    } catch {
      throw .protocolBroken("cannot read the server's options (\(error))")
    }
    try self.init(decoding: bytes)
  }

  /// Decodes what ``encoded()`` returned; `.badRequest` for other bytes. No message contains a value.
  package init(decoding bytes: [UInt8]) throws(ServerError) {
    guard bytes.starts(with: Self.magic) else {
      throw .protocolBroken("the server's options are of another version")
    }
    self.init(mountpoint: "", manifest: "")
    var reader = Reader(rest: bytes[Self.magic.count...])
    var seen: Set<String> = []
    while let (key, value) = try reader.next() {
      let option = MountOption.named(key)
      if key == Self.mountpointKey {
        mountpoint = value
      } else if let option, option.isForServer {
        try option.decode(value, into: &self)
      } else {
        throw .protocolBroken("an option came that this server does not know")
      }
      if !seen.insert(key).inserted, option?.isRepeatable != true {
        throw .badRequest("the option \(key) came twice")
      }
    }
    guard mountpoint.hasPrefix("/"), !allLists.isEmpty, allLists.allSatisfy(\.isAbsolute) else {
      throw .badRequest("the server's options lack the mountpoint or the manifest")
    }
  }

  private struct Writer {
    var bytes: [UInt8]

    mutating func put(_ key: String, _ value: String) {
      for text in [key, value] {
        withUnsafeBytes(of: UInt32(text.utf8.count).littleEndian) { bytes += $0 }
        bytes += text.utf8
      }
    }
  }

  private struct Reader {
    var rest: ArraySlice<UInt8>

    mutating func next() throws(ServerError) -> (key: String, value: String)? {
      rest.isEmpty ? nil : (try text(), try text())
    }

    private mutating func text() throws(ServerError) -> String {
      guard rest.count >= 4 else { throw .badRequest("the server's options are cut short") }
      let length = rest.prefix(4).reversed().reduce(0) { $0 << 8 | Int($1) }
      rest.removeFirst(4)
      guard rest.count >= length, let text = String(validating: rest.prefix(length), as: UTF8.self) else {
        throw .badRequest("the server's options are cut short, or not UTF-8")
      }
      rest.removeFirst(length)
      return text
    }
  }
}
