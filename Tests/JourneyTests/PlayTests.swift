import Base
import Glibc
import TestSupport
import Testing

/// Real media through the mount, from an origin that is slower than the players would like.
@Suite struct PlayTests {
  @Test(arguments: Traveller.all) func mediaDecodesAsTheOriginal(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        origin.configure {
          $0.latency = 0.03
          $0.lineRate = 4e6
        }
        let kinds = MediaFactory.Kind.allCases
        for kind in kinds { origin.set("/\(kind.rawValue)", OriginResource(file: try MediaFactory.file(kind))) }
        try journey.mount(kinds.map { origin.url("/\($0.rawValue)") + "\n" }.joined())

        for kind in kinds {
          let (name, original) = (kind.rawValue, try MediaFactory.file(kind))
          #expect(try journey.probe(journey.at(name)) == journey.probe(original), "\(name)")
          let wanted = try journey.decode(original)
          #expect(wanted.count > 100)
          #expect(try journey.decode(journey.at(name)) == wanted, "\(name) decodes to something else")
          try journey.wait(for: "complete", name)
          try journey.succeed(["cmp", journey.kept(name), original])
          try journey.expectSentOnce(origin, "/\(name)")
        }

        // From now on nobody needs the origin, nor, for the copies, the mount.
        origin.stop()
        for kind in kinds {
          let wanted = try journey.decode(try MediaFactory.file(kind))
          #expect(try journey.decode(journey.at(kind.rawValue)) == wanted)
        }
        try journey.unmount()
        for kind in kinds {
          let wanted = try journey.decode(try MediaFactory.file(kind))
          #expect(try journey.decode(journey.kept(kind.rawValue)) == wanted)
        }
      }
    }
  }

  @Test(arguments: Traveller.all) func mpvPlaysAndSeeks(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        origin.configure {
          $0.latency = 0.05
          $0.lineRate = 1.5e6
        }
        let (name, original) = ("index-last.mp4", try MediaFactory.file(.mp4IndexLast))
        origin.set("/\(name)", OriginResource(file: original))
        try journey.mount(origin.url("/\(name)") + "\n")
        #expect(try journey.play(journey.at(name), seeks) == "played and sought\n")
        // The player is gone; what it began is finished.
        try journey.wait(for: "complete", name)
        try journey.succeed(["cmp", journey.kept(name), original])
        try journey.expectSentOnce(origin, "/\(name)")
        origin.stop()
        #expect(try journey.play(journey.at(name), seeks) == "played and sought\n")
      }
    }
  }
}

extension Journey {
  /// What ffprobe says of a file, without its path.
  func probe(_ path: String) throws -> String {
    try succeed([
      "ffprobe", "-v", "error", "-of", "flat", "-show_streams", "-show_entries",
      "format=nb_streams,format_name,duration,size:format_tags", path,
    ])
  }

  /// The hashes of every frame of every stream.
  func decode(_ path: String) throws -> String {
    try succeed(["ffmpeg", "-nostdin", "-v", "error", "-xerror", "-i", path, "-map", "0", "-f", "framemd5", "-"])
  }

  /// Each byte was sent, and but for what was in flight when a transfer ended, once.
  func expectSentOnce(_ origin: Origin, _ path: String, sourceLocation: SourceLocation = #_sourceLocation) throws {
    let size = try #require(
      origin.resource(path).flatMap { resource -> Int64? in
        if case .file(let file) = resource.content { return sizeOfFile(file) }
        return resource.size
      })
    let coverage = origin.log.coverage(of: path)
    #expect(coverage.distinctBytes == size, "\(path)", sourceLocation: sourceLocation)
    #expect(
      Double(coverage.bytesSent) <= Double(size) * 1.01,
      "\(path): \(coverage.bytesSent) bytes sent of \(size): again \(coverage.sentMoreThanOnce)",
      sourceLocation: sourceLocation)
  }
}

/// The size of a file of the disk.
func sizeOfFile(_ path: String) -> Int64? {
  var status = stat()
  return stat(path, &status) == 0 ? Int64(status.st_size) : nil
}

/// Plays, seeks ahead and back, and checks that the time goes on from there.
private let seeks = """
  with Player() as player:
      def until(low, high):
          while True:
              shown, seeking = player.get('playback-time'), player.get('seeking')
              if seeking is False and shown is not None and low <= shown <= high: return
              player.wait(f'{shown} never came between {low} and {high}')
      until(0.4, 6)
      assert player.ask('seek', 8.5, 'absolute')['error'] == 'success'
      until(8.7, 12)
      assert player.ask('seek', 3, 'absolute')['error'] == 'success'
      until(3.2, 8)
      player.ask('quit')
      assert player.mpv.wait(60) == 0
      print('played and sought')
  """
