import Base
import Glibc
import Manifest
import Server
import Storing

/// `mediafs check`: reads a manifest as a mount would, without mounting and without the network.
enum CheckCommand {
  static let help = CommandHelp(
    synopsis: ["check [--quiet] [--format NAME] [--base-url URL] FILE"],
    summary: "Check a list of URLs for mistakes",
    about: [
      """
      Reads a list as mount does, without mounting and without network access. Prints the files and folders that a \
      mount would show. Reports every problem with its line number on standard error, and warns of URLs that cannot \
      play as a file (HLS and DASH playlists).
      """
    ],
    operands: [("FILE", "The list; - for standard input.")],
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
      guard options.operands.count == 1 else { throw .usage("check takes one FILE, or - for standard input") }
      if options.operands[0].hasPrefix("http://") || options.operands[0].hasPrefix("https://") {
        throw .usage("check asks no server: get the list first (curl URL | mediafs check -)")
      }
      let terminal = Terminal()
      let folder: TemporaryFolder
      do throws(Errno) { folder = try TemporaryFolder() } catch {
        throw .failed("cannot make a temporary folder: \(error)")
      }
      var manifest = try readable(options.operands[0], in: folder)
      do throws(ManifestError) {
        if let url = options.value("base-url") { manifest.base = try ManifestBase(url: url) }
      } catch {
        throw .usage("--base-url: \(error)")
      }
      if let name = options.value("format") {
        manifest.format = ListFormat(rawValue: name)
        let names = ListFormat.allCases.map(\.rawValue).joined(separator: ", ")
        if manifest.format == nil { throw .usage("--format takes one of \(names), not \(name)") }
      }
      // The command reads the list twice: the importer reports problems, and shows no entries to check for playlists.
      var (problems, format) = try look(at: manifest)
      let reader = try open(manifest)
      let catalog: Catalog
      let report: ImportReport
      do throws(StoreError) {
        catalog = try Catalog.open(path: folder.path + "/catalog.sqlite", access: .readWrite)
        report = try catalog.importManifest(reader, fingerprint: [], strict: false) { problems.append($0) }
      } catch {
        print(problems, manifest.name)
        throw .failed(error.message)
      }
      print(problems, manifest.name)
      do throws(StoreError) {
        if !options.has("quiet") { try ManifestTree(catalog).draw(on: terminal) }
        try catalog.close()
      } catch {
        throw .failed(error.message)
      }
      let errors = problems.count { $0.severity == .error }
      terminal.line(
        (format.map { "\($0.title): " } ?? "")
          + [
            TerminalText.count(report.files, "file"), TerminalText.count(report.folders, "folder"),
            TerminalText.count(Int64(errors), "error"), TerminalText.count(Int64(problems.count - errors), "warning"),
          ].joined(separator: ", "))
      try terminal.finish()
      return errors == 0 ? ExitCode.done : ExitCode.failed
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
  }

  /// `file` itself, or a copy if it can be read only once: standard input, or a pipe such as a shell's `<(…)`.
  private static func readable(
    _ file: String, in folder: borrowing TemporaryFolder
  ) throws(CommandError) -> Source {
    let isInput = file == "-"
    var status = stat()
    if !isInput, stat(file, &status) != 0 || status.st_mode & S_IFMT != S_IFIFO {
      let folder = file.lastIndex(of: "/").map { String(file[...$0]) } ?? "."
      return Source(path: file, name: file, folder: folder)
    }
    let name = isInput ? "standard input" : file
    // The extension marks a playlist, so the copy keeps it.
    let path =
      folder.path
      + (file.hasSuffix(".m3u8") ? "/manifest.m3u8" : file.hasSuffix(".m3u") ? "/manifest.m3u" : "/manifest")
    do throws(Errno) {
      let input = isInput ? FileDescriptor(owning: try retrying { dup(STDIN_FILENO) }) : try .open(file, O_RDONLY)
      try copy(input, to: try .open(path, O_WRONLY | O_CREAT | O_EXCL))
    } catch {
      throw .failed("cannot read \(name): \(error)")
    }
    return Source(path: path, name: name)
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

  /// Warnings about URLs that mediafs can download but that do not play as a file, and the list's format.
  private static func look(at source: Source) throws(CommandError) -> ([ManifestProblem], ListFormat?) {
    var found: [ManifestProblem] = []
    var reader = try open(source)
    do throws(ManifestError) {
      while let item = try reader.next() {
        guard case .entry(let entry) = item, let warning = playlistWarning(for: entry) else { continue }
        found.append(ManifestProblem(line: entry.line, severity: .warning, message: warning))
      }
    } catch {
      throw .failed("\(error)".replacing(source.path, with: source.name))
    }
    return (found, reader.format)
  }

  private static func print(_ problems: [ManifestProblem], _ name: String) {
    for problem in problems.sorted(by: { $0.line < $1.line }) {
      let severity = problem.severity == .error ? "error" : "warning"
      // The format of compiler messages, so that an editor can jump to the line.
      var line = "\(TerminalText.plain(name)):\(problem.line): \(severity): \(TerminalText.plain(problem.message))\n"
      line.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
  }
}

/// A check asks no server: folders of servers are empty.
private struct NothingRemembered: ServerFolders {
  func listing(of folder: ServerFolder) throws(Errno) -> FolderListing? { nil }
}
