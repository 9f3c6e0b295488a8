import Base
import FoundationEssentials
import Glibc
import TestSupport
import Testing

/// Tokens, passwords and header values go to the origin, and nowhere else.
@Suite struct SecretTests {
  @Test(arguments: Traveller.all) func secretsAreSentAndNeverShown(_ traveller: Traveller) throws {
    // A word for each traveller: `ps` shows the processes of the tests beside this one too, some of which have just
    // begun and still have their arguments.
    let word = "xyzzy-\(traveller)"
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        try withOrigin { other in
          for path in ["/userinfo.mp4", "/token.mp4", "/entry.mp4", "/netrc.mp4"] { origin.add(path, size: 300_000) }
          origin.fault(.status(403), path: "/denied.mp4")
          other.add("/moved.mp4", size: 1000)
          origin.fault(.redirect(to: other.url("/moved.mp4?signature=\(word)-location")), path: "/moves.mp4")
          let authority = "127.0.0.1:\(origin.port)"
          try journey.folder.write("machine localhost login anna password \(word)-netrc\n", to: ".netrc", mode: 0o600)
          try journey.folder.write("X-Key: \(word)-file\n", to: "headers", mode: 0o600)
          if let user = journey.user {
            for name in [".netrc", "headers"] {
              try #require(chown(journey.folder.file(name), user.userID, user.groupID) == 0)
            }
          }
          try journey.list(
            """
            http://bob:\(word)-userinfo@\(authority)/userinfo.mp4
            http://\(authority)/token.mp4?token=\(word)-token
            http://\(authority)/entry.mp4
              header=X-Entry: \(word)-entry
            http://localhost:\(origin.port)/netrc.mp4
            http://bob:\(word)-userinfo@\(authority)/denied.mp4?token=\(word)-token
              header=X-Entry: \(word)-entry
            http://bob:\(word)-userinfo@\(authority)/moves.mp4

            """)
          let process = try journey.start(
            try journey.mountCommand([
              "--foreground", "-v", "-v", "--header", "X-Given: \(word)-given", "--header", "@headers",
              "--log-file", journey.folder.file("log"),
            ]))
          defer { process.terminate() }
          try #require(
            eventually(timeout: 60) { Mounts.isMounted(journey.mountpoint) }, "\(process.standardErrorSoFar)")
          let names = ["userinfo", "token", "entry", "netrc", "denied", "moves"].map { "\($0).mp4" }
          var shown = ""
          for name in names {
            let result = try journey.run(["cat", journey.at(name)])
            #expect(result.succeeded == (name != "denied.mp4"), "\(name): \(result.errors)")
            shown += result.errors
            shown += try journey.run(["getfattr", "-d", "-m", "-", journey.at(name)]).output
          }
          #expect(shown.contains("user.xdg.origin.url"))
          shown += try Command.succeed(["ps", "-eww", "-o", "args"])
          shown += try journey.mediafs("status", journey.mountpoint).output
          shown += try journey.mediafs("status", "--json", journey.mountpoint).output
          shown += readText("/proc/self/mountinfo") + readText(journey.folder.file("log")) + journey.log
          shown += process.standardErrorSoFar + process.standardOutputSoFar
          #expect(shown.contains("denied.mp4"))
          for line in shown.split(separator: "\n") where line.contains(word) {
            Issue.record("a secret is shown: \(line)")
          }

          // The server is not dumpable: it leaves no core file, and not even its own user reads its memory or
          // environment.
          let status = try journey.mediafs("status", "--json", journey.mountpoint).output
          let server = try #require(status.firstMatch(of: #/"pid":\s*(\d+)/#)?.1)
          #expect(try Command.succeed(["stat", "-c", "%u", "/proc/\(server)/environ"]) == "0\n")
          if traveller == .user {
            for file in ["environ", "mem", "maps"] {
              let read = try journey.run(["head", "-c", "1", "/proc/\(server)/\(file)"])
              #expect(!read.succeeded && read.output.isEmpty, "\(file)")
            }
          }

          // They were sent to whom they are meant for.
          let basic = { (pair: String) in "Basic " + Data(pair.utf8).base64EncodedString() }
          let sent = { (origin: Origin, path: String, field: String) in
            origin.log.entries(of: path).first?.request.header(field)
          }
          #expect(sent(origin, "/userinfo.mp4", "Authorization") == basic("bob:\(word)-userinfo"))
          #expect(sent(origin, "/netrc.mp4", "Authorization") == basic("anna:\(word)-netrc"))
          #expect(sent(origin, "/token.mp4", "X-Given") == "\(word)-given")
          #expect(sent(origin, "/token.mp4", "X-Key") == "\(word)-file")
          #expect(origin.log.entries(of: "/token.mp4").first?.request.target == "/token.mp4?token=\(word)-token")
          #expect(sent(origin, "/entry.mp4", "X-Entry") == "\(word)-entry")
          #expect(sent(origin, "/token.mp4", "X-Entry") == nil)
          // Another host (a port makes another origin) gets nothing but its own URL.
          let moved = try #require(other.log.entries.first?.request)
          #expect(moved.target == "/moved.mp4?signature=\(word)-location")
          let all = moved.headers.map { "\($0.name): \($0.value)" }.joined(separator: "\n")
          #expect(!all.contains(word) && moved.header("Authorization") == nil, "\(all)")

          process.signal(SIGTERM)
          #expect(process.wait(timeout: 60)?.status == 0)
          // What is stored has the URLs: nobody else may look.
          let mode = try journey.succeed(["stat", "-c", "%a", journey.store, "\(journey.store)/catalog.sqlite"])
          #expect(mode == "700\n600\n")
        }
      }
    }
  }
}
