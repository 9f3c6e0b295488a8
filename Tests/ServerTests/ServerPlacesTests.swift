import Glibc
import TestSupport
import Storing
import Testing

@testable import Server

/// Which files a restricted server may use. Rules follow links as they lead when the server starts, and a server may
/// have put links into its own folders.
@Suite("The files of a restricted server")
final class ServerPlacesTests {
  private let folder: TemporaryFolder
  private let request: MountRequest

  init() throws {
    folder = try TemporaryFolder()
    for name in ["store", "store/partial", "private", "disk"] { try folder.makeFolder(name) }
    var request = MountRequest(mountpoint: folder.file("mnt"), manifest: folder.file("list"))
    request.storage.store = folder.file("store")
    self.request = request
  }

  deinit { #expect(throws: Never.self) { try folder.remove() } }

  private func link(_ name: String, to target: String) throws {
    try #require(symlink(folder.file(target), folder.file(name)) == 0)
  }

  @Test func aLinkThatTheUserMadeIsFollowed() throws {
    var request = request
    try link("shelf", to: "disk")
    try link("certificate", to: "private/ca.pem")
    try folder.write("", to: "private/ca.pem")
    request.storage.library = folder.file("shelf")
    request.origins.certificateFile = folder.file("./certificate")
    let places = try ServerPlaces(request, goesOn: true)
    #expect(places.store == folder.file("store"))
    #expect(places.written == [folder.file("store"), folder.file("disk"), "/dev/null"])
    #expect(places.read.contains(folder.file("private/ca.pem")))
    #expect(!places.read.contains(folder.file("certificate")) && !places.read.contains(folder.file("private")))
  }

  /// The server makes and renames files beside it.
  @Test func theFolderOfTheMetricsFileIsWritten() throws {
    var request = request
    try folder.makeFolder("numbers")
    request.metricsFile = folder.file("numbers/m.prom")
    #expect(try ServerPlaces(request, goesOn: true).written.contains(folder.file("numbers")))
    let home = try #require(getenv("HOME").map { String(cString: $0) })
    for path in ["\(home)/m.prom", "/m.prom"] {
      request.metricsFile = path
      #expect(throws: ServerError.self, "\(path)") { _ = try ServerPlaces(request, goesOn: true) }
    }
  }

  /// A server that does what it should not would put another program there.
  @Test func theProgramForCompleteFilesLiesElsewhere() throws {
    let places = try ServerPlaces(request, goesOn: true)
    for name in ["store/run", "disk/run"] {
      try folder.write("#!/bin/sh\n", to: name)
      try #require(chmod(folder.file(name), 0o755) == 0)
    }
    try link("shortcut", to: "store/run")
    for (words, isRefused) in [
      (["sh"], false), (["/bin/sh", "-c", "true"], false), ([folder.file("disk/run"), "store/run"], false),
      ([folder.file("store/run")], true), ([folder.file("shortcut")], true),
      (["sh", folder.file("store/later")], true), (["sh", folder.file("disk/../store/run")], true),
    ] as [([String], Bool)] {
      let checked = Result { () throws(ServerError) in try places.check(program: words, of: "--on complete") }
      let message: String? = if case .failure(let error) = checked { error.description } else { nil }
      #expect(isRefused == (message?.contains("--on complete") ?? false), "\(words): \(message ?? "taken")")
    }
  }

  /// A program that sets the name servers replaces its file in a folder of its own; elsewhere the file itself counts.
  @Test func theNameServersAreRead() throws {
    try folder.write("", to: "resolv.conf")
    try link("relative", to: "disk/../resolv.conf")
    for (name, target, place) in [
      ("outside", folder.file("resolv.conf"), folder.file("resolv.conf") as String?),
      ("beside", "./resolv.conf", folder.file("resolv.conf")), ("twice", "relative", folder.file("resolv.conf")),
      ("missing", "/run/\(UInt64.random(in: .min ... .max))/resolv.conf", nil), ("resolv.conf", "", nil),
    ] {
      if !target.isEmpty { try #require(symlink(target, folder.file(name)) == 0) }
      var places = try ServerPlaces(request, goesOn: true)
      let before = places.read
      places.readResolver(folder.file(name))
      #expect(places.read == before + (place.map { [$0] } ?? []), "\(name)")
    }
    guard access("/run/user", F_OK) == 0 else { return }
    try #require(symlink("/run/user/resolv.conf", folder.file("soon")) == 0)
    var places = try ServerPlaces(request, goesOn: true)
    places.readResolver(folder.file("soon"))
    #expect(places.read.last == "/run/user")
  }

  /// The next server would otherwise write to where its library's link leads.
  @Test(arguments: ["library", "partial/shelf", "partial/../library", "partial/deep"])
  func aLinkInTheStoreLeadsNowhere(name: String) throws {
    var request = request
    try link("store/library", to: "private")
    try link("store/partial/shelf", to: "private")
    try link("store/partial/deep", to: "store/library")
    for way in ["store", "alias"] {
      if way == "alias" { try link("alias", to: "store") }
      request.storage.library = folder.file("\(way)/\(name)")
      let failure = #expect(throws: ServerError.self) { try ServerPlaces(request, goesOn: true) }
      #expect(failure?.description.contains("is a symbolic link") == true)
    }
    request.storage.library = folder.file("disk")
    for option in [\MountRequest.origins.netrcFile, \.origins.certificateFile, \.log.file] {
      var other = request
      other[keyPath: option] = folder.file("store/\(name)")
      #expect(throws: ServerError.self) { try ServerPlaces(other, goesOn: true) }
    }
    request.manifest = folder.file("store/\(name)")
    #expect(throws: ServerError.self) { try ServerPlaces(request, goesOn: true) }
  }

  /// The first server of a mount wrote there, and the next ones and their lists come later.
  @Test func aLinkInTheRecordsOfMountsLeadsNowhere() throws {
    var request = request
    let environment = ["HOME": folder.file("data"), "XDG_DATA_HOME": folder.file("data")]
    let records = try MountRegistry(environment: environment, uid: geteuid()).writableFolder
    try Command.succeed(["mkdir", "-p", records])
    try folder.write("", to: "private/list")
    try #require(symlink(folder.file("private/list"), records + "/list") == 0)
    request.manifest = records + "/list"
    #expect(throws: ServerError.self) {
      try ServerPlaces(request, goesOn: true, environment: environment)
    }
    try #require(unlink(records + "/list") == 0 && rename(folder.file("private/list"), records + "/list") == 0)
    #expect(try ServerPlaces(request, goesOn: true, environment: environment).read.contains(records + "/list"))
  }

  /// A server that writes to a library around its store could replace the store.
  @Test func aStoreInALibraryIsNoLink() throws {
    var request = request
    request.storage.library = folder.path
    #expect(try ServerPlaces(request, goesOn: true).written.contains(folder.path))
    try #require(rename(folder.file("store"), folder.file("moved")) == 0)
    try link("store", to: "private")
    #expect(throws: ServerError.self) { try ServerPlaces(request, goesOn: true) }
  }

  @Test func aFolderInTheStoreNeedsNoRuleAndWhatIsMissingGetsNone() throws {
    var request = request
    try folder.makeFolder("store/library")
    request.origins.certificateFile = folder.file("store/partial")
    let places = try ServerPlaces(request, goesOn: true)
    #expect(places.written == [folder.file("store"), "/dev/null"])
    #expect(!places.read.contains { $0.hasPrefix(folder.path) })
    request.storage.library = folder.file("gone")
    #expect(try ServerPlaces(request, goesOn: true).written == places.written)
    #expect(access(folder.file("gone"), F_OK) != 0)
  }
}
