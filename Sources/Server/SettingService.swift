import Base
import Control
import Fetching
import Reading
import Storing

/// `mediafs set`: the options that change under a live mount. The table `setting` has what was set; each value is what
/// the option takes, `default` forgets it, and `none` stands for no limit.
struct SettingService: Sendable {
  /// One option that can be set.
  struct Setting: Sendable {
    let option: MountOption
    /// Whether it can be set for a single host.
    let isForHosts: Bool
    /// Whether it can be without a limit.
    let mayBeNone: Bool
  }

  /// Every option that can be set.
  static let all: [Setting] = [
    ("limit-rate", true, true), ("max-connections", true, false), ("max-size", false, false), ("evict", false, false),
    ("max-age", false, true),
  ]
  .compactMap { name, isForHosts, mayBeNone in
    MountOption.named(name).map { Setting(option: $0, isForHosts: isForHosts, mayBeNone: mayBeNone) }
  }

  static let forget = "default"
  static let none = "none"
  /// The most hosts of which something is set: each is in memory, and a client hears of all.
  static let mostHosts = 256

  let request: MountRequest
  /// The limit on the store's size that holds unless one is set.
  let maximumSize: Int64
  let catalog: Catalog

  // MARK: What holds

  /// What the options and the settings say together.
  func limits() throws(StoreError) -> ReadingLimits {
    let settings = try catalog.notes.settings()
    let whole = combined(settings, scope: "")
    var limits = ReadingLimits(
      maximumSize: whole.storage.maxSize ?? maximumSize, rates: TransferRates(all: whole.downloads.limitRate),
      connections: whole.downloads.maxConnections ?? ReadingOptions().connections)
    (limits.evicts, limits.maximumAge) = (whole.storage.evicts, whole.storage.maxAge)
    for host in Set(settings.map(\.scope)) where !host.isEmpty {
      let own = combined(settings, scope: host)
      limits.rates.hosts[host] = own.downloads.limitRate
      limits.hostConnections[host] = own.downloads.maxConnections
    }
    return limits
  }

  /// The request with what was set in that scope; of a host, only what was set. A setting that this program cannot read
  /// is left out: a newer one may have made it.
  private func combined(_ settings: [StoredSetting], scope: String) -> MountRequest {
    var combined = scope.isEmpty ? request : MountRequest(mountpoint: request.mountpoint, manifest: request.manifest)
    for setting in settings where setting.scope == scope {
      guard let known = Self.all.first(where: { $0.option.name == setting.name }), scope.isEmpty || known.isForHosts
      else { continue }
      do throws(MountOptionError) {
        if setting.value == Self.none, known.mayBeNone {
          if known.option.name == "max-age" {
            combined.storage.maxAge = nil
          } else {
            combined.downloads.limitRate = nil
          }
        } else {
          try known.option.take(setting.value, into: &combined)
        }
      } catch {
        Log.warning("the setting \(setting.name) is ignored: this program cannot read its value")
      }
    }
    return combined
  }

  /// What a server was started with, over it what was set for the whole mount, and what was set for hosts.
  func applied(to facts: MountFacts) throws(StoreError) -> MountFacts {
    let settings = try catalog.notes.settings()
    let whole = combined(settings, scope: "")
    var facts = facts
    for index in facts.settings.indices {
      let name = facts.settings[index].name
      guard settings.contains(where: { $0.scope.isEmpty && $0.name == name }), let option = MountOption.named(name)
      else { continue }
      facts.settings[index] = .init(name: name, value: option.encoded(whole).first, source: .set)
    }
    for setting in settings.filter({ !$0.scope.isEmpty }).prefix(ControlLimits.settings - facts.settings.count) {
      guard let option = Self.all.first(where: { $0.isForHosts && $0.option.name == setting.name })?.option else {
        continue
      }
      let value = option.encoded(combined([setting], scope: setting.scope)).first
      facts.settings.append(.init(name: setting.name, value: value, source: .set, host: setting.scope))
    }
    return facts
  }

  // MARK: Requests

  /// Sets values of the mount, or of a host: all of them or none. Then tells all of them, also without `values`.
  func set(
    _ values: [String: String], host: String?, _ fileSystem: MediaFileSystem
  ) throws(ControlFailure) -> [SettingStatus] {
    let scope = try host.map(scope) ?? ""
    var changes: [CatalogChange] = []
    for (name, value) in values.sorted(by: { $0.key < $1.key }) {
      try check(name, value, isForHost: host != nil)
      changes.append(.setting(scope: scope, name: name, value: value == Self.forget ? nil : value))
    }
    do throws(StoreError) {
      if !scope.isEmpty, values.values.contains(where: { $0 != Self.forget }) {
        let others = Set(try catalog.notes.settings().map(\.scope)).subtracting(["", scope])
        guard others.count < Self.mostHosts else {
          throw StoreError(
            kind: .invalid,
            message:
              "those of \(Self.mostHosts) hosts are set: end some with '--host HOST limit-rate=default' and "
              + "'max-connections=default'")
        }
      }
      if !changes.isEmpty {
        try fileSystem.changeSettings(changes) { () throws(StoreError) in try limits() }
      }
      return try told()
    } catch {
      throw ControlFailure(.failed, "settings cannot be changed: \(error.message)")
    }
  }

  private func check(_ name: String, _ value: String, isForHost: Bool) throws(ControlFailure) {
    let known = Self.all.filter { !isForHost || $0.isForHosts }
    guard let setting = known.first(where: { $0.option.name == name }) else {
      let names = known.map(\.option.name).joined(separator: ", ")
      throw ControlFailure(
        .failed, "\(name) cannot be set\(isForHost ? " for a host" : " on a live mount"): these can be: \(names)")
    }
    if value == Self.forget || (value == Self.none && setting.mayBeNone) { return }
    var trial = request
    do throws(MountOptionError) {
      try setting.option.take(value, into: &trial)
    } catch {
      let others = setting.mayBeNone ? "'\(Self.none)' or '\(Self.forget)'" : "'\(Self.forget)'"
      switch error {
      case .usage(let message), .failed(let message): throw ControlFailure(.failed, "\(message); or \(others)")
      }
    }
  }

  /// The host that a user names: with a scheme it is meant so; without, the one that this store knows, else https.
  private func scope(_ host: String) throws(ControlFailure) -> String {
    let name = host.lowercased()
    var candidates = [name]
    if !name.utf8.contains(UInt8(ascii: ":")) || name.firstRange(of: "://") == nil {
      candidates = ["https://" + name]
      do throws(StoreError) {
        candidates =
          try catalog.notes.hosts().map(\.name).filter { known in
            known.hasSuffix("://" + name) || known == Self.withoutOwnPort("http://" + name)
          }.sorted() + candidates
      } catch {
        throw ControlFailure(.failed, error.message)
      }
    }
    guard let first = candidates.first, let meant = Self.withoutOwnPort(first), HostNote.isName(meant) else {
      throw ControlFailure(.failed, "\(host) is no host: give it as in a URL, such as https://example.com:8080")
    }
    return meant
  }

  /// As URLs of the list have it: they lose a port that is their scheme's own. nil for a scheme that none has.
  private static func withoutOwnPort(_ name: String) -> String? {
    for (scheme, port) in [("https://", ":443"), ("http://", ":80")] where name.hasPrefix(scheme) {
      return name.hasSuffix(port) ? String(name.dropLast(port.count)) : name
    }
    return nil
  }

  /// All settings with where each value comes from.
  private func told() throws(StoreError) -> [SettingStatus] {
    let settings = try catalog.notes.settings()
    var told: [SettingStatus] = []
    for setting in Self.all {
      let name = setting.option.name
      let ofMount = settings.first { $0.scope.isEmpty && $0.name == name }
      let given = setting.option.encoded(request).first
      let standard = name == "max-size" ? String(maximumSize) : setting.option.standard
      if let ofMount {
        told.append(SettingStatus(name: name, value: ofMount.value, from: .set))
      } else {
        let isStandard = given == nil || given == standard
        told.append(SettingStatus(name: name, value: given ?? standard ?? "", from: isStandard ? .standard : .option))
      }
      for own in settings where !own.scope.isEmpty && own.name == name {
        told.append(SettingStatus(name: name, value: own.value, from: .set, host: own.scope))
      }
    }
    return told
  }
}
