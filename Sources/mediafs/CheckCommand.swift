import Base
import Glibc
import Manifest
import Server
import Storing

/// `mediafs check`: reads a manifest as a mount would, without mounting and without the network.
enum CheckCommand {
  static let help = CommandHelp(
    synopsis: ["check [--quiet] [--format NAME] [--base-url URL] [NAME=]FILE..."],
    summary: "Check a list of URLs for mistakes",
    about: [
      """
      Reads a list as mount does, without mounting and without network access. Prints the files and folders that a \
      mount would show. Reports every problem with its line number on standard error, and warns of URLs that cannot \
      play as a file (HLS and DASH playlists).
      """
    ],
    operands: [("FILE", "The list; - for standard input. With NAME= before it, it shows in that folder.")],
    groups: [
      (
        "Options",
        [.flag("quiet", "q", help: "Do not print the files and folders.")]
          + MountOption.all.filter { ["format", "base-url"].contains($0.name) }.map(Option.init)
      )
    ],
    status: "0 no errors (there may be warnings), 1 errors, 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("check", arguments, help) {
      options throws(CommandError) in
      let lists = options.operands.map { NamedList($0) }
      if lists.isEmpty { throw .usage("check takes a FILE, or - for standard input") }
      if let list = lists.first(where: { $0.url != nil }) {
        throw .usage("check asks no server: get the list first (curl URL | mediafs check -): \(list.shown)")
      }
      if let list = lists.first(where: { !$0.isNamedWell }) {
        throw .usage("check takes NAME=FILE, with a name that a folder can have, not \(list.folder)=\(list.place)")
      }
      if let conflict = NamedList.conflict(of: lists) { throw .usage(conflict) }
      let terminal = Terminal()
      let folder: TemporaryFolder
      do throws(Errno) { folder = try TemporaryFolder() } catch {
        throw .failed("cannot make a temporary folder: \(error)")
      }
      var base = ManifestBase.none
      do throws(ManifestError) {
        if let url = options.value("base-url") { base = try ManifestBase(url: url) }
      } catch {
        throw .usage("--base-url: \(error)")
      }
      let format = try options.value("format").map { (name) throws(CommandError) in
        if let known = ListFormat(rawValue: name) { return known }
        throw .usage(
          "--format takes one of \(ListFormat.allCases.map(\.rawValue).joined(separator: ", ")), not \(name)")
      }
      var sources: [Source] = []
      for list in lists { sources.append(try readable(list, in: folder, base, format)) }
      // The command reads each list twice: the importer reports problems, and shows no entries to check for playlists.
      var findings = CheckFindings()
      var titles: [String] = []
      for source in sources {
        let format = try look(at: source, &findings)
        if let format, !titles.contains(format.title) { titles.append(format.title) }
      }
      let top = lists.firstIndex { $0.folder.isEmpty }
      let reader = try open(lists, sources, top)
      let catalog: Catalog
      let report: ImportReport
      do throws(StoreError) {
        catalog = try Catalog.open(path: folder.path + "/catalog.sqlite", access: .readWrite)
        report = try catalog.importManifest(reader, fingerprint: [], strict: false) { findings.add($0) }
      } catch {
        print(findings, of: sources, top: top ?? 0)
        throw .failed(sources.reduce(error.message) { $0.replacing($1.path, with: $1.name) })
      }
      print(findings, of: sources, top: top ?? 0)
      do throws(StoreError) {
        if !options.has("quiet") { try ManifestTree(catalog).draw(on: terminal) }
        try catalog.close()
      } catch {
        throw .failed(error.message)
      }
      terminal.line(
        (titles.isEmpty ? "" : titles.joined(separator: ", ") + ": ")
          + [
            TerminalText.count(report.files, "file"), TerminalText.count(report.folders, "folder"),
            TerminalText.count(findings.errors, "error"), TerminalText.count(findings.warnings, "warning"),
          ].joined(separator: ", "))
      try terminal.finish()
      return findings.errors == 0 ? ExitCode.done : ExitCode.failed
    }
  }

  /// A manifest that can be read more than once.
  private struct Source {
    var path: String
    var name: String
    var base = ManifestBase.none
    var format: ListFormat?
    /// The list's own folder; nil if it is no file.
    var folder: String?

    func problem(_ line: Int, _ message: String) -> ManifestProblem {
      var problem = ManifestProblem(line: line, severity: .warning, message: message)
      problem.list = path
      return problem
    }
  }

  /// The list's file itself, or a copy if it can be read only once: standard input, or a pipe such as a shell's `<(…)`.
  private static func readable(
    _ list: NamedList, in folder: borrowing TemporaryFolder, _ base: ManifestBase, _ format: ListFormat?
  ) throws(CommandError) -> Source {
    let file = list.place
    let isInput = file == "-"
    var status = stat()
    if !isInput, stat(file, &status) != 0 || status.st_mode & S_IFMT != S_IFIFO {
      let folder = file.lastIndex(of: "/").map { String(file[...$0]) } ?? "."
      return Source(path: file, name: file, base: base, format: format, folder: folder)
    }
    // The extension marks a playlist, so the copy keeps it.
    let ending = [".m3u8", ".m3u"].first(where: file.hasSuffix) ?? ""
    let path = folder.path + "/manifest\(list.folder.isEmpty ? "" : "-" + list.folder)\(ending)"
    do throws(Errno) {
      let input = isInput ? FileDescriptor(owning: try retrying { dup(STDIN_FILENO) }) : try .open(file, O_RDONLY)
      try copy(input, to: try .open(path, O_WRONLY | O_CREAT | O_EXCL))
    } catch {
      throw .failed("cannot read \(list.shown): \(error)")
    }
    return Source(path: path, name: list.shown, base: base, format: format)
  }

  private static func copy(
    _ input: borrowing FileDescriptor, to output: consuming FileDescriptor
  ) throws(Errno) {
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 16)
    defer { buffer.deallocate() }
    var offset: Int64 = 0
    while true {
      let count = try retrying { read(input.rawValue, buffer.baseAddress, buffer.count) }
      if count == 0 { return }
      try output.writeFully(UnsafeRawBufferPointer(rebasing: buffer[..<count]), at: offset)
      offset += Int64(count)
    }
  }

  /// All lists, one after the other, as a mount reads them. `top`: which of them is at the top.
  private static func open(
    _ lists: [NamedList], _ sources: [Source], _ top: Int?
  ) throws(CommandError) -> ManifestReader {
    var parts: [ListPart] = []
    for index in lists.indices where index != top {
      parts.append(ListPart(try open(sources[index]), folder: lists[index].folder))
    }
    var reader: ManifestReader
    if let top { reader = try open(sources[top]) } else { reader = ManifestReader(name: "") }
    reader.append(parts)
    reader.needsEntries = true
    return reader
  }

  private static func open(_ source: Source) throws(CommandError) -> ManifestReader {
    do throws(ManifestError) {
      return try ManifestReader(
        path: source.path, base: source.base, format: source.format,
        cookies: .files(below: source.folder), folders: NothingRemembered())
    } catch {
      // The user knows the list by its own name, not by the copy's.
      throw .failed("\(error)".replacing(source.path, with: source.name))
    }
  }

  /// Adds warnings about URLs that mediafs can download but that do not play as a file, and what is no mistake, and yet
  /// shows otherwise in a mount. The list's format.
  private static func look(
    at source: Source, _ findings: inout CheckFindings
  ) throws(CommandError) -> ListFormat? {
    var served: (first: ManifestFolder, count: Int64)?
    var resolvers: Set<String> = []
    var reader = try open(source)
    do throws(ManifestError) {
      while let item = try reader.next() {
        if case .folder(let folder) = item { served = (served?.first ?? folder, (served?.count ?? 0) + 1) }
        guard case .entry(let entry) = item else { continue }
        if entry.resolver == nil, let warning = playlistWarning(for: entry) {
          findings.add(source.problem(entry.line, warning))
        }
        if let name = entry.resolver, resolvers.count < 16, resolvers.insert(name).inserted {
          findings.notes.append(source.problem(entry.line, ListResolvers.message(name)))
        }
      }
    } catch {
      throw .failed("\(error)".replacing(source.path, with: source.name))
    }
    if let (first, count) = served {
      let names = TerminalText.count(count, "folder") + (count > 1 ? ", the first here, show" : " shows")
      findings.notes.append(
        source.problem(first.line, "\(names) in a mount what the server lists; a check asks no server"))
    }
    return reader.format
  }

  /// `top`: the list whose problems name none.
  private static func print(_ findings: CheckFindings, of sources: [Source], top: Int) {
    func list(of problem: ManifestProblem) -> Int { sources.firstIndex { $0.path == problem.list } ?? top }
    let all =
      findings.problems.map { ($0, $0.severity == .error ? "error" : "warning") } + findings.notes.map { ($0, "note") }
    for (problem, severity) in all.sorted(by: { (list(of: $0.0), $0.0.line) < (list(of: $1.0), $1.0.line) }) {
      let name = TerminalText.plain(sources[list(of: problem)].name)
      // The format of compiler messages, so that an editor can jump to the line.
      tell("\(name):\(problem.line): \(severity): \(TerminalText.plain(problem.text))")
    }
    if findings.more > 0 {
      tell("\(findings.more) more problems are not printed; mend these first")
    }
  }

  private static func tell(_ text: String) {
    var line = text + "\n"
    line.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
  }
}

/// What a check found.
private struct CheckFindings {
  /// The most problems that are printed, so that memory does not grow with the list.
  private static let most = 10_000

  private(set) var problems: [ManifestProblem] = []
  /// What is no mistake.
  var notes: [ManifestProblem] = []
  private(set) var (errors, warnings): (Int64, Int64) = (0, 0)
  /// How many problems are counted and not kept.
  var more: Int64 { errors + warnings - Int64(problems.count) }

  mutating func add(_ problem: ManifestProblem) {
    if problem.severity == .error { errors += 1 } else { warnings += 1 }
    if problems.count < Self.most { problems.append(problem) }
  }
}

/// A check asks no server: folders of servers are empty.
private struct NothingRemembered: ServerFolders {
  func listing(of folder: ServerFolder) throws(Errno) -> FolderListing? { nil }
}
