import Testing

@testable import Control

@Suite struct MountPathTests {
  private let mounts = ["/home/me/media", "/home/me/media/inner", "/srv/films"]

  private func resolve(_ argument: String, from folder: String = "/home/me", links: [String: String] = [:]) -> String? {
    MountPath.resolve(argument, from: folder, mountpoints: mounts) { path in
      #expect(!mounts.contains { (path + "/").hasPrefix($0 + "/") }, "a mount was touched: \(path)")
      return links[path]
    }.map { "\($0.mountpoint)|\($0.path)" }
  }

  @Test(arguments: [
    ("/home/me/media/talk.mp4", "/home/me/media|talk.mp4"), ("media/a/b.mp3", "/home/me/media|a/b.mp3"),
    ("media", "/home/me/media|"), ("media/", "/home/me/media|"), ("./media/.//a", "/home/me/media|a"),
    ("media/inner/x", "/home/me/media/inner|x"), ("media/a/../b", "/home/me/media|b"),
    ("media/../media/b", "/home/me/media|b"), ("../../srv/films/f", "/srv/films|f"),
  ])
  func belowAMount(_ argument: String, _ expected: String) { #expect(resolve(argument) == expected) }

  @Test(arguments: ["mediathek/a", "/", "", "/home/me", "media/../a", "/srv/film"])
  func elsewhere(_ argument: String) { #expect(resolve(argument) == nil) }

  @Test func linksOnTheWayAreFollowed() {
    #expect(resolve("link/a", links: ["/home/me/link": "media"]) == "/home/me/media|a")
    #expect(resolve("/h/me/media/a", links: ["/h": "/home"]) == "/home/me/media|a")
    #expect(resolve("x/y/a", links: ["/home/me/x": "../../srv", "/srv/y": "films/sub/.."]) == "/srv/films|a")
    // `..` behind a link leaves from where the link led.
    #expect(resolve("link/../films/a", links: ["/home/me/link": "/srv/other"]) == "/srv/films|a")
  }

  @Test func aLoopOfLinksEnds() { #expect(resolve("loop/a", links: ["/home/me/loop": "loop"]) == nil) }

  @Test func relativeToTheMount() {
    #expect(MountPath.relative("a/./b//c/") == "a/b/c")
    #expect(MountPath.relative("a/../b") == "b")
    #expect(MountPath.relative("../b") == nil)
    #expect(MountPath.relative(".") == "")
  }
}
