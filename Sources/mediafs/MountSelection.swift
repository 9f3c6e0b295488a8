import Control
import Glibc
import Server
import Storing

/// The mounts that the registry remembers (for root also those of other users), and how the arguments of a command name
/// them.
struct MountSelection {
  /// A mount, and paths in it.
  struct Choice {
    /// One mount of the registry.
    var mount: MountRecord
    /// Paths in it, without a leading slash; the empty path is the mountpoint itself.
    var paths: [String]
  }

  private let mounts: [MountRecord]
  /// For root: the live mounts of other users. One of them stands for a mount of root's that was there before.
  private let others: [MountRecord]
  private let folder: String

  /// The mounts of this user.
  static func remembered() throws(CommandError) -> MountSelection {
    let mounts: [MountRecord]
    do throws(StoreError) {
      let registry = try registry()
      try registry.forgetVanished(unless: MountTable.mayHang)
      mounts = try registry.all()
    } catch {
      throw .failed(error.message)
    }
    let others = OthersMounts.find()
    // The kernel answers this from its name cache, even within a dead mount.
    guard let folder = getcwd(nil, 0) else { return MountSelection(mounts, others, folder: "/") }
    defer { free(folder) }
    return MountSelection(mounts, others, folder: String(cString: folder))
  }

  /// Where this user's mounts are remembered.
  static func registry() throws(StoreError) -> MountRegistry {
    var environment: [String: String] = [:]
    for name in ["HOME", "XDG_DATA_HOME"] { environment[name] = getenv(name).map { String(cString: $0) } }
    return try MountRegistry(environment: environment, uid: geteuid())
  }

  private init(_ mounts: [MountRecord], _ others: [MountRecord], folder: String) {
    self.mounts = mounts.filter { own in !others.contains { $0.isAt(own.mountpoint) } }
    self.others = others
    self.folder = folder
  }

  /// What a command says that finds no mount.
  static let none = "there is no mount of yours: 'mediafs mount' makes one; findmnt -t fuse.mediafs shows them all"

  /// Every mount of this user as a whole.
  var everything: [Choice] { mounts.map { Choice(mount: $0, paths: [""]) } }
  /// For root also those of other users.
  var everyones: [Choice] { (mounts + others).map { Choice(mount: $0, paths: [""]) } }

  /// The mount that `argument` names.
  func mount(_ argument: String) throws(CommandError) -> MountRecord {
    guard let place = resolve(argument), place.path.isEmpty, let mount = record(place) else {
      throw .failed(unknown(argument))
    }
    return mount
  }

  /// The mount that the only operand names, or, without one, the only mount: this user's, and for root without any the
  /// only one of other users.
  func one(_ operands: [String]) throws(CommandError) -> MountRecord {
    if operands.count > 1 { throw .usage("one MOUNTPOINT is enough") }
    if let operand = operands.first { return try mount(operand) }
    let known = mounts.isEmpty ? others : mounts
    switch known.count {
    case 1: return known[0]
    case 0: throw .failed(Self.none)
    default: throw .usage("there are \(known.count) mounts: name one (mediafs status lists them)")
    }
  }

  /// The mount of the store in `folder`: a remembered one, else what the store's name tells. For root only a store of
  /// its own: another user could lead root anywhere.
  func store(_ folder: String) throws(CommandError) -> MountRecord {
    let path = try Files.absolute(folder)
    if geteuid() == 0 { try OthersMounts.check(ownStore: path) }
    let real = Files.canonical(path) ?? path
    if let known = mounts.first(where: { (Files.canonical($0.store) ?? $0.store).utf8.elementsEqual(real.utf8) }) {
      return known
    }
    return MountRecord(mountpoint: real, store: real, library: real + "/library", manifest: "-")
  }

  /// Groups `operands` by mount, in the order in which they first name each mount.
  ///
  /// An operand at or below a mountpoint names a place in that mount. Any other relative operand names a path in `base`
  /// or, without `base`, in the only mount. `asPatterns`: one with a slash that names a place in a mount's root gets a
  /// leading slash, because a pattern without any is for every folder.
  func choose(
    _ operands: some Sequence<String>, in base: MountRecord? = nil, asPatterns: Bool = false
  ) throws(CommandError) -> [Choice] {
    var choices: [Choice] = []
    for operand in operands {
      var (mount, path) = try place(operand, base)
      let slash = UInt8(ascii: "/")
      if asPatterns, !path.isEmpty, operand.utf8.contains(slash), !path.utf8.contains(slash) { path = "/" + path }
      if let index = choices.firstIndex(where: { $0.mount.isAt(mount.mountpoint) }) {
        choices[index].paths.append(path)
      } else {
        choices.append(Choice(mount: mount, paths: [path]))
      }
    }
    return choices
  }

  private func place(_ operand: String, _ base: MountRecord?) throws(CommandError) -> (MountRecord, String) {
    if operand.isEmpty { throw .usage("a path is empty: name a file or a folder") }
    if let place = resolve(operand), let mount = record(place), base == nil || base == mount {
      return (mount, place.path)
    }
    guard !operand.hasPrefix("/"), let mount = base ?? (mounts.count == 1 ? mounts[0] : nil) else {
      throw .failed(unknown(operand))
    }
    guard let path = MountPath.relative(operand) else {
      throw .failed("\(operand) leads out of \(mount.mountpoint)")
    }
    return (mount, path)
  }

  /// Whether `operand` is a mountpoint itself.
  func isMountpoint(_ operand: String) -> Bool { resolve(operand)?.path.isEmpty == true }

  private func resolve(_ argument: String) -> MountPath? {
    let mountpoints = (mounts + others).map(\.mountpoint)
    return MountPath.resolve(argument, from: folder, mountpoints: mountpoints, readLink: MountTable.linkTarget)
  }

  private func record(_ place: MountPath) -> MountRecord? {
    (mounts + others).first { $0.isAt(place.mountpoint) }
  }

  private func unknown(_ argument: String) -> String {
    let known = (mounts + others).map(\.mountpoint)
    let hint =
      switch known.count {
      case 0 where geteuid() == 0: Self.none
      case 0: "you have no mount (only root can ask about those of other users: findmnt -t fuse.mediafs)"
      case 1...5: "known mounts: \(known.joined(separator: ", "))"
      default: "there are \(known.count) mounts: 'mediafs status' lists them"
      }
    return "\(argument) is not at or below a mount: \(hint)"
  }
}

extension MountRecord {
  /// Whether it is at that mountpoint. By bytes: as Strings, names that differ only in their normalization are equal.
  func isAt(_ mountpoint: String) -> Bool { self.mountpoint.utf8.elementsEqual(mountpoint.utf8) }
}

extension ControlFailure {
  /// The command's own words for it.
  var commandError: CommandError { .failed(message) }
}
