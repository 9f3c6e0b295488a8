/// Pages that show a film and are not one: what people paste from a browser. Their names have no extension.
enum WatchPage {
  /// The hosts of the sites. Apart from their pages, because many URLs are compared with them.
  private static let hosts: [StaticString] = [
    "youtube.com", "youtu.be", "vimeo.com", "dailymotion.com", "twitch.tv", "soundcloud.com", "bandcamp.com",
    "tiktok.com",
  ]
  /// How the paths of each site's pages begin; empty: any path but `/`, on the site's own host.
  private static let pages: [[StaticString]] = [
    ["/watch", "/shorts/", "/live/", "/playlist"], [], [], ["/video/"], ["/videos/"], [], ["/track/", "/album/"],
    ["/@"],
  ]

  /// The warning for the URL of such a page; nil for any other.
  static func warning(_ url: borrowing URLParser) -> String? {
    let bytes = url.bytes.span
    let host = bytes.extracting(url.host)
    for site in hosts.indices {
      let start = host.count - hosts[site].utf8CodeUnitCount
      guard start == 0 || start > 0 && host[start - 1] == 0x2E, host.hasPrefix(hosts[site], at: start) else { continue }
      let path = bytes.extracting(url.path)
      let isPage: Bool
      if pages[site].isEmpty {
        // A host below the site's own, such as `player.vimeo.com`, serves other things.
        let isOwn = start == 0 || start == 4 && host.hasPrefix("www.") || start == 2 && host.hasPrefix("m.")
        isPage = isOwn && path.count > 1
      } else {
        isPage = pages[site].contains { path.hasPrefix($0) }
      }
      return isPage ? message : nil
    }
    return nil
  }

  private static let message =
    "this is the page of a film, not the film: the file will be the page; "
    + "`yt-dlp -j` makes a list of such pages that mediafs reads, and a resolver (resolver=) renews their links"
}
