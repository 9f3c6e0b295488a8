import Base
import Glibc
import TestSupport
import Testing

/// Several lists in one mount.
@Suite struct SeveralListTests {
  private func mount(_ journey: Journey, _ lists: [String], _ options: String...) throws -> CommandResult {
    try journey.run(
      [try Programs.path("mediafs"), "mount", journey.mountpoint, "--store", journey.store]
        + lists.flatMap { ["--manifest", $0] } + options)
  }

  private func write(_ journey: Journey, _ name: String, _ text: String) throws -> String {
    let path = try journey.folder.write(text, to: name)
    if let user = journey.user { try #require(chown(path, user.userID, user.groupID) == 0) }
    return path
  }

  @Test(arguments: Traveller.all) func eachHasItsFolder(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      let top = try write(journey, "top", "http://127.0.0.1:1/one.bin\n")
      let films = try write(journey, "films", "http://127.0.0.1:1/a.mkv\n")
      let music = try write(journey, "music", "http://127.0.0.1:1/a.mp3\n  dir=Album\n")
      #expect(try mount(journey, [top, "Films=\(films)", "Music=\(music)"]).succeeded)
      #expect(try journey.names() == ["Films", "Music", "one.bin"])
      #expect(try journey.names("Music/Album") == ["a.mp3"])
      // Each is followed.
      try journey.shell(#"echo "$1" >> "$2""#, "http://127.0.0.1:1/b.mkv", films)
      try journey.waitForNames(["a.mkv", "b.mkv"], in: "Films")
      try journey.shell(#"echo "$1" >> "$2""#, "http://127.0.0.1:1/two.bin", top)
      try journey.waitForNames(["Films", "Music", "one.bin", "two.bin"])
      // A broken one keeps what was, and is named.
      try journey.shell(#"printf '<?xml version="1.0"?><rss><channel>' > "$1""#, music)
      #expect(
        eventually { (try? journey.mediafs("status", journey.mountpoint).output.contains("\(music), line")) == true })
      #expect(try journey.names("Music/Album") == ["a.mp3"])
      // So does one that lost all, though the others have names.
      for list in [music, top] {
        try journey.shell(#"printf 'http://127.0.0.1:1/a.mp3\n  dir=Album\n' > "$1"; : > "$2""#, music, list)
        #expect(
          eventually {
            (try? journey.mediafs("status", journey.mountpoint).output.contains("\(list): this list of URLs has no"))
              == true
          }, "\(journey.log.suffix(2000))")
        #expect(try journey.names("Music/Album") == ["a.mp3"] && journey.names().contains("one.bin"))
      }
      // Of those that are gone, the one is named.
      try journey.shell(#"rm "$1""#, films)
      let message = "the list \(films) is not there any more"
      #expect(eventually { (try? journey.mediafs("status", journey.mountpoint).output.contains(message)) == true })
      #expect(try journey.names("Films") == ["a.mkv", "b.mkv"])
    }
  }

  /// `check` shows what the mount of several lists would; each problem is told with its own list.
  @Test func severalAreChecked() throws {
    try withJourney { journey in
      let top = try write(journey, "top", "http://127.0.0.1:1/one.bin\n")
      let films = try write(journey, "films", "http://127.0.0.1:1/a.mkv\n\nftp://127.0.0.1/b.mkv\n")
      let music = try write(journey, "music.m3u", "#EXTM3U\nhttp://127.0.0.1:1/a.m3u8\n")
      let checked = try journey.mediafs("check", "Films=\(films)", top, "Music=\(music)")
      #expect(checked.status == 1)
      for name in ["Films", "a.mkv", "Music", "one.bin"] { #expect(checked.output.contains(name)) }
      #expect(checked.output.hasSuffix("3 files, 2 folders, 1 error, 1 warning\n"), "\(checked.output)")
      #expect(checked.errors.contains("\(films):3: error: "), "\(checked.errors)")
      #expect(checked.errors.contains("\(music):2: warning: "), "\(checked.errors)")
      #expect(try journey.mediafs("check", top, films).errors.contains("NAME=FILE"))
      #expect(try journey.mediafs("check", "A=\(top)", "A=\(films)").errors.contains("the folder A"))
      #expect(try journey.mediafs("check", ".=\(top)").status == 2)
      // A mount names the list, too.
      let mounted = try mount(journey, [top, "Films=\(films)"])
      #expect(mounted.succeeded && mounted.errors.contains("\(films):3: "), "\(mounted.errors)")
    }
  }

  @Test func aCheckSaysWhoseNamesAreMissing() throws {
    try withJourney { journey in
      let one = try write(journey, "one", "http://127.0.0.1:1/a.mkv\nhttp://127.0.0.1:1/films/\n")
      let checked = try journey.mediafs("check", one)
      #expect(checked.succeeded && checked.output.hasSuffix("1 file, 1 folder, 0 errors, 0 warnings\n"), "\(checked)")
      #expect(checked.errors.hasPrefix("\(one):2: note: 1 folder shows"), "\(checked.errors)")
      let two = try write(journey, "two", "http://127.0.0.1:1/a/\nhttp://127.0.0.1:1/b/\n")
      let several = try journey.mediafs("check", "A=\(two)").errors
      #expect(several.hasPrefix("\(two):1: note: 2 folders, the first here, show"), "\(several)")
    }
  }

  /// A list that was cut at the end of a line waits, however few of all names it has.
  @Test func eachWaitsForAReloadByItself() throws {
    try withJourney { journey in
      func lines(_ count: Int) -> String { (0..<count).map { "http://127.0.0.1:1/\($0).bin\n" }.joined() }
      let top = try write(journey, "top", lines(3))
      let films = try write(journey, "films", lines(4))
      let music = try write(journey, "music", lines(100))
      #expect(try mount(journey, [top, "Films=\(films)", "Music=\(music)"]).succeeded)
      // Half of them.
      _ = try write(journey, "films", lines(2))
      try journey.waitForNames(["0.bin", "1.bin"], in: "Films")
      for (list, name, words) in [(films, "films", "lacks 2 of its 2 names"), (top, "top", "lacks 2 of its 3 names")] {
        _ = try write(journey, name, name == "films" ? "http://127.0.0.1:1/new.bin\n" : lines(1))
        #expect(
          eventually {
            (try? journey.mediafs("status", journey.mountpoint).output.contains("\(list) \(words)")) == true
          }, "\(journey.log.suffix(2000))")
        #expect(try journey.names("Films") == ["0.bin", "1.bin"] && journey.names().count == 5)
        if name == "films" { _ = try write(journey, name, lines(2)) }
      }
      try journey.succeed([try Programs.path("mediafs"), "reload", journey.mountpoint])
      #expect(try journey.names() == ["0.bin", "Films", "Music"] && journey.names("Films").count == 2)
    }
  }

  /// A folder that was empty at the mount shows what comes.
  @Test func anEmptyFolderIsAListToo() throws {
    try withJourney { journey in
      let www = try TemporaryFolder(open: true)
      defer { try? www.remove() }
      try www.makeFolder("incoming")
      var settings = NginxSettings(.folder(www.path))
      settings.lines = "autoindex on;"
      try withNginx(settings) { nginx in
        #expect(try mount(journey, [nginx.url("/incoming/")], "--fresh", "1s").succeeded)
        #expect(try journey.names().isEmpty)
        try www.write("text", to: "incoming/a.txt")
        try journey.waitForNames(["a.txt"])
        #expect(try journey.succeed(["cat", journey.at("a.txt")]) == "text")
      }
    }
  }

  @Test func noListHasToBeAtTheTop() throws {
    try withJourney { journey in
      let www = try TemporaryFolder(open: true)
      defer { try? www.remove() }
      try www.write("http://127.0.0.1:1/a.mkv\n", to: "list.txt")
      try www.write("text", to: "films/b.txt")
      var settings = NginxSettings(.folder(www.path))
      settings.lines = "autoindex on;"
      try withNginx(settings) { nginx in
        #expect(
          try mount(journey, ["A=\(nginx.url("/list.txt"))", "B=\(nginx.url("/films/"))"], "--fresh", "1s").succeeded)
        #expect(try journey.names() == ["A", "B"])
        #expect(try journey.names("B") == ["b.txt"] && journey.names("A") == ["a.mkv"])
        try www.write("http://127.0.0.1:1/a.mkv\nhttp://127.0.0.1:1/c.mkv\n", to: "list.txt")
        try journey.waitForNames(["a.mkv", "c.mkv"], in: "A")
      }
    }
  }

  @Test func twoListsThatWantOneNameAreNamed() throws {
    try withJourney { journey in
      let one = try write(journey, "one", "http://127.0.0.1:1/a.mkv\n  out=Films\n")
      let two = try write(journey, "two", "http://127.0.0.1:1/b.mkv\n")
      for (lists, words) in [
        (["Films=\(one)", "Films=\(two)"], "two lists want the folder Films: \(one) and \(two)"),
        ([one, two], "--manifest is given twice without a name"), (["a b/..=\(one)"], "cannot read"),
        (["..=\(one)"], "--manifest takes"), (["Films=-"], "--manifest takes"), (["Films="], "--manifest takes"),
      ] {
        let failed = try mount(journey, lists)
        #expect(failed.status != 0 && failed.errors.contains(words), "\(lists): \(failed)")
      }
      let mounted = try mount(journey, [one, "Films=\(two)"])
      #expect(mounted.errors.contains("\(one)") && mounted.errors.contains("folder of the list \(two)"), "\(mounted)")
      #expect(try journey.names().count == 2)
    }
  }
}
