import Control
import Screen

/// What a person orders of the server.
enum TopRequest: Equatable, Sendable {
  case fetch([String])
  case clear([String])
  /// Says a rule of paths.
  case rule(RuleWord, [String])

  /// What is said when it is done.
  var report: String {
    switch self {
    case .fetch(let paths): "fetching \(Self.name(paths))"
    case .clear(let paths): "cleared \(Self.name(paths))"
    case .rule(.keep, let paths): "\(Self.name(paths)) is kept from now on"
    case .rule(.auto, let paths): "\(Self.name(paths)) is stored as it is read"
    case .rule(.online, let paths): "\(Self.name(paths)) is not stored beyond what a reader needs"
    case .rule(.pause, let paths): "paused \(Self.name(paths))"
    case .rule(.resume, let paths): "resumed \(Self.name(paths))"
    }
  }

  /// A few words for it.
  var verb: String {
    switch self {
    case .fetch: "fetch"
    case .clear: "clear"
    case .rule(let word, _): word.rawValue
    }
  }

  private static func name(_ paths: [String]) -> String { paths == [""] ? "everything" : paths.joined(separator: ", ") }
}

/// What a key leads to outside of the view.
enum TopAction: Equatable, Sendable {
  case quit
  /// Ask the server for it.
  case ask(TopRequest)
  /// Show the mount with that index.
  case show(Int)
  /// Whether all files are to be listed.
  case listAll(Bool)
}

extension TopState {
  /// A key was typed. Returns what is to be done.
  mutating func type(_ key: Key, _ now: Double) -> TopAction? {
    switch mode {
    case .help:
      mode = .files
      return nil
    case .question(_, let request):
      mode = .files
      if key == .character("y") || key == .character("Y") { return .ask(request) }
      say("nothing was changed", now)
      return nil
    case .filter(let before):
      typeFilter(key, before)
      return nil
    case .mounts: return typeChoice(key)
    case .files: return typeCommand(key, now)
    }
  }

  private mutating func typeFilter(_ key: Key, _ before: String) {
    switch key {
    case .enter: mode = .files
    case .character("\u{1B}"):
      mode = .files
      filter = before
    case .backspace: if !filter.isEmpty { filter.removeLast() }
    case .character("\u{15}"): filter = ""
    case .character(let scalar) where scalar.value >= 0x20 && filter.utf8.count < 200:
      filter.unicodeScalars.append(scalar)
    default: break
    }
    arrange()
  }

  private mutating func typeChoice(_ key: Key) -> TopAction? {
    switch key {
    case .up: choose(-1)
    case .down: choose(1)
    case .pageUp, .home: choose(-mounts.count)
    case .pageDown, .end: choose(mounts.count)
    case .enter: return mounts.isEmpty ? nil : .show(choice)
    case .character("q"): return .quit
    case .character("\u{1B}") where mount != nil: mode = .files
    default: break
    }
    return nil
  }

  private mutating func typeCommand(_ key: Key, _ now: Double) -> TopAction? {
    switch key {
    case .up: select((selection ?? 0) - 1)
    case .down: select((selection ?? -1) + 1)
    case .pageUp: select((selection ?? 0) - max(1, page - 1))
    case .pageDown: select((selection ?? 0) + max(1, page - 1))
    case .home: select(0)
    case .end: select(files.count - 1)
    case .character("q"): return .quit
    case .character("h"), .character("?"): mode = .help
    case .character("/"): mode = .filter(before: filter)
    case .character("\u{1B}") where !filter.isEmpty:
      filter = ""
      arrange()
    case .character("s"):
      let all = Order.allCases
      order = all[((all.firstIndex(of: order) ?? 0) + 1) % all.count]
      arrange()
      say("sorted by \(order.rawValue)", now)
    case .character("S"):
      isReversed.toggle()
      arrange()
      say("sorted by \(order.rawValue)\(isReversed ? ", reversed" : "")", now)
    case .character("a"):
      showsAll.toggle()
      arrange()
      say(showsAll ? "all files of which something is known" : "files that something goes on with", now)
      return .listAll(showsAll)
    case .character("m"):
      if mounts.count > 1 {
        chooseFrom(mount ?? 0)
        mode = .mounts
      } else {
        say("there is no other mount", now)
      }
    case .character("P"): return .ask(.rule(.pause, [""]))
    case .character("R"): return .ask(.rule(.resume, [""]))
    case .character(let scalar): return typeFileCommand(scalar, now)
    case .enter, .backspace, .other: break
    }
    return nil
  }

  private mutating func typeFileCommand(_ scalar: Unicode.Scalar, _ now: Double) -> TopAction? {
    guard "fckuopr".unicodeScalars.contains(scalar) else { return nil }
    guard let file = selectedFile else {
      say("no file is selected", isError: true, now)
      return nil
    }
    switch scalar {
    case "f": return .ask(.fetch([file.path]))
    case "k": return .ask(.rule(.keep, [file.path]))
    case "u": return .ask(.rule(.auto, [file.path]))
    case "o": return .ask(.rule(.online, [file.path]))
    case "p": return .ask(.rule(.pause, [file.path]))
    case "r": return .ask(.rule(.resume, [file.path]))
    default:
      mode = .question(
        "Delete the \(TerminalText.size(file.stored)) stored of \(file.path)? y/n", .clear([file.path]))
      return nil
    }
  }
}
