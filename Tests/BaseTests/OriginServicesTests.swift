import Base
import TestSupport
import Testing

@Suite struct OriginProgramTests {
  @Test func servesAndIsControlledOverHTTP() async throws {
    let program = try BackgroundProcess(
      [builtProduct("test-origin"), "--resource", "path=/f%d,size=2K,count=3", "--set", "latency=0.01"])
    defer { program.terminate() }
    #expect(program.waitForOutput("\n"))
    let url = String(program.standardOutputSoFar.dropLast())
    let curl = { (arguments: [String]) in try await Command.run(["curl", "-sS"] + arguments) }
    let file = try await curl(["\(url)/f2", "-r", "5-14"])
    #expect(Pattern.check(file.standardOutput, name: "/f2", offset: 5) == nil && file.standardOutput.count == 10)
    let wrong = try await curl(["-X", "POST", "\(url)/.origin/fault?kind=nonsense"])
    #expect(wrong.output.contains("no fault is called nonsense"))
    #expect(
      try await curl(["-X", "POST", "\(url)/.origin/fault?kind=status&status=503&next=1&path=/f1"]).output == "ok\n")
    let status = ["-o", "/dev/null", "-w", "%{http_code}", "\(url)/f1"]
    #expect(try await curl(status).output == "503")
    #expect(try await curl(status).output == "200")
    let log = try await curl(["\(url)/.origin/log"])
    // Read by a real parser: the text is ours.
    let script = """
      import json, sys
      log = json.load(sys.stdin)
      print([(r["path"], r["range"], r["status"], r["end"]) for r in log["requests"]])
      print([(r["path"], r["bytesSent"], r["sentMoreThanOnce"]) for r in log["resources"]])
      print(log["totals"]["requests"], log["totals"]["connections"], log["totals"]["peakConnections"] >= 1)
      """
    let read = try await Command.succeed(["python3", "-c", script], input: log.standardOutput)
    #expect(
      read == """
        [('/f2', [5, 15], 206, 'complete'), ('/f1', None, 503, 'complete'), ('/f1', None, 200, 'complete')]
        [('/f1', 2048, []), ('/f2', 10, [])]
        3 3 True

        """)
    program.signal(15)
    #expect(await program.wait(timeout: 10)?.status == 0)
  }

  @Test func refusesWrongFlags() async throws {
    let result = try await Command.run([builtProduct("test-origin"), "--fault", "kind=nonsense"])
    #expect(result.status == 2 && result.errors.contains("no fault is called nonsense"))
  }
}

@Suite struct NginxTests {
  @Test func servesAFolderAndLogsRanges() throws {
    try withTemporaryFolder(open: true) { folder in
      try folder.write(Pattern.bytes(name: "n", offset: 0, count: 200_000), to: "a.mp4")
      try withNginx(NginxSettings(.folder(folder.path))) { nginx in
        let result = try Command.run(["curl", "-sS", "-r", "1000-1999", nginx.url("/a.mp4")])
        #expect(result.standardOutput.count == 1000)
        #expect(Pattern.check(result.standardOutput, name: "n", offset: 1000) == nil)
        #expect(eventually { nginx.accesses.count == 1 })
        let access = try #require(nginx.accesses.first)
        #expect(access.status == 206 && access.bodyBytes == 1000 && access.range == "bytes=1000-1999")
        #expect(access.contentRange == "bytes 1000-1999/200000" && access.version == "HTTP/1.1")
        nginx.kill()
        #expect(try Command.run(["curl", "-s", nginx.url("/a.mp4")]).status == 7, "refused")
      }
    }
  }

  @Test func bringsTLSAndHTTP2ToTheOrigin() throws {
    try withTemporaryFolder { folder in
      try withOrigin { origin in
        origin.add("/a", size: 100_000)
        let certificate = try TestCertificate(in: folder)
        var settings = NginxSettings(.origin(origin))
        settings.certificate = certificate
        try withNginx(settings) { nginx in
          let curl = [
            "curl", "-sS", "--cacert", certificate.authority, "-w", "%{stderr}%{http_version}", nginx.url("/a"),
          ]
          let result = try Command.run(curl)
          #expect(result.errors == "2" && Pattern.check(result.standardOutput, name: "/a", offset: 0) == nil)
          #expect(result.standardOutput.count == 100_000)
          #expect(try Command.run(curl + ["--http1.1"]).errors == "1.1")
          #expect(try Command.run(["curl", "-s", nginx.url("/a")]).status == 60, "an unknown authority")
          origin.fault(.closeAfter(5000))
          #expect(try Command.run(curl).status != 0)
          #expect(origin.log.entries.allSatisfy { $0.request.version == "HTTP/1.1" })
        }
      }
    }
  }

  @Test(arguments: [
    (TestCertificate.Kind.wrongHost, Int32(60), "subject name"), (.expired, 60, "expired"), (.selfSigned, 0, ""),
  ])
  func certificatesThatAreWrong(kind: TestCertificate.Kind, status: Int32, message: String) throws {
    try withTemporaryFolder(open: true) { folder in
      try folder.write("x", to: "a")
      let certificate = try TestCertificate(kind, in: folder)
      var settings = NginxSettings(.folder(folder.path))
      settings.certificate = certificate
      try withNginx(settings) { nginx in
        let trusting = try Command.run(["curl", "-sS", "--cacert", certificate.authority, nginx.url("/a")])
        #expect(trusting.status == status && (status == 0 || trusting.errors.contains(message)), "\(trusting.errors)")
        #expect(try Command.run(["curl", "-s", nginx.url("/a")]).status == 60)
      }
    }
  }

  @Test(.enabled(if: TestUser.canSwitch)) func runsUnprivileged() throws {
    let nobody = try #require(TestUser(named: "nobody"))
    try withTemporaryFolder(open: true) { folder in
      try folder.write("content", to: "a")
      var settings = NginxSettings(.folder(folder.path))
      settings.user = nobody
      try withNginx(settings) { nginx in
        try #expect(Command.succeed(["curl", "-sS", nginx.url("/a")]) == "content")
      }
    }
  }
}
