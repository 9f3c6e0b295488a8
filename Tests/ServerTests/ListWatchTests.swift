import Base
import Glibc
import TestSupport
import Testing

@testable import Server

/// What inotify tells of a list, through the links that lead to it. The kernel has an event ready when the call that
/// causes it returns.
@Suite struct ListWatchTests {
  private func withPlace(_ body: (Place) throws -> Void) throws {
    try withTemporaryFolder { try body(Place(folder: $0)) }
  }

  @Test func aLinkOnTheWayIsHeard() throws {
    try withPlace { place in
      try place.make("v1/list", "v2/list")
      try place.swap("cur", to: "v1")
      let watch = place.watch("cur/list")
      #expect(watch.take() == nil)
      try place.swap("cur", to: "v2")
      #expect(watch.take() == .closed)
      watch.renew()
      // Where it leads to now is heard, and what it led to before is not.
      try place.make("v1/list")
      #expect(watch.take() == nil)
      try place.make("v2/list")
      #expect(watch.take() == .closed)
      // Removed and made anew.
      try #require(unlink(place.folder.file("cur")) == 0)
      watch.renew()
      _ = watch.take()
      try #require(symlink(place.folder.file("v1"), place.folder.file("cur")) == 0)
      #expect(watch.take() == .closed)
    }
  }

  @Test("The mounted volume of a ConfigMap, whose files are links through a link")
  func links() throws {
    try withPlace { place in
      try place.make("..1/list", "..2/list")
      try place.swap("..data", to: "..1")
      try place.swap("list", to: "..data/list")
      try place.swap("mounted", to: ".")
      let watch = place.watch("mounted/./mounted/list")
      try place.swap("..data", to: "..2")
      #expect(watch.take() == .closed)
      watch.renew()
      try place.swap("mounted", to: "../" + (place.folder.path.split(separator: "/").last.map(String.init) ?? ""))
      #expect(watch.take() == .closed)
      watch.renew()
      try place.make("..2/list")
      #expect(watch.take() == .closed)
    }
  }

  @Test func whatIsMissingOnTheWayIsHeardWhenItComes() throws {
    try withPlace { place in
      try place.swap("cur", to: "later")
      let watch = place.watch("cur/list")
      try #require(mkdir(place.folder.file("later"), 0o700) == 0)
      #expect(watch.take() == .closed)
      watch.renew()
      // Not before it is written.
      let file = try FileDescriptor.open(place.folder.file("later/list"), O_WRONLY | O_CREAT)
      #expect(watch.take() == nil)
      _ = consume file
      #expect(watch.take() == .closed)
    }
  }

  @Test func aLinkToItselfEnds() throws {
    try withPlace { place in
      try place.swap("list", to: "list")
      let watch = place.watch("list")
      try place.make("other")
      #expect(watch.take() == nil)
      try place.make("v1/list")
      try place.swap("list", to: "v1/list")
      #expect(watch.take() == .closed)
    }
  }
}

/// A folder with lists and links to them.
private struct Place {
  let folder: TemporaryFolder

  /// A watch of the list at `path` below the folder.
  func watch(_ path: String) -> ListWatch {
    let watch = ListWatch(MountRequest(mountpoint: "/m", manifest: folder.file(path)))
    watch.renew()
    return watch
  }

  func make(_ files: String...) throws {
    for file in files {
      let above = file.split(separator: "/").dropLast().joined(separator: "/")
      if !above.isEmpty, access(folder.file(above), F_OK) != 0 { _ = try folder.makeFolder(above) }
      try folder.write("http://127.0.0.1:1/a.bin\n", to: file)
    }
  }

  /// Puts a link in the place of another one, as `ln -sfn` and deployments do.
  func swap(_ link: String, to target: String) throws {
    try #require(symlink(target, folder.file("new")) == 0)
    try #require(rename(folder.file("new"), folder.file(link)) == 0)
  }
}
