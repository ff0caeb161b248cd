// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Debian's Prometheus, with a gateway and its hub.
  @Suite(.enabled("prometheus is not installed") { access("/usr/bin/prometheus", X_OK) == 0 })
  struct Prometheus {
    private let rig: Rig
    private let gatewayPort: Int

    init() throws {
      rig = try Rig()
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      gatewayPort = Int(port)
      rig.writeGatewayConfiguration()
      let file = rig.scratch.location("gw.toml")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      _ = rig.scratch.write(
        "gw.toml", text.replacing("[control]\n", with: "[control]\nmetrics_port = \(gatewayPort)\n"))
      try rig.startRadio(["--queue", "100"])
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("inject r0 0 20")
      try rig.waitForAllAtHub(messages: 20)
      // The delay of events is known only for a gateway with a right clock.
      let now = Int64(Date().timeIntervalSince1970 * 1000)
      let body = #"{"epoch":"e","events":[{"seq":1,"at":\#(now),"trusted":true,"kind":"message","body":{"text":"x"}}]}"#
      #expect(rig.askHub("POST", "/v1/gateways/hill/events", body: body)?.status == 200)
    }

    /// The texts between backquotes in a document that look like queries.
    private func documented() throws -> [String] {
      let file = Checkout.folder.appending(path: "docs/observability.md")
      let texts = try String(contentsOf: file, encoding: .utf8).matches(of: /`([^`\n]*meshpost_[^`\n]*[<>=] [^`\n]*)`/)
      return texts.map { String($0.output.1) }
    }

    private func dashboard() throws -> [String] {
      let file = Checkout.folder.appending(path: "deploy/grafana/meshpost-hub.json")
      let panels = try JSONValue(parsing: String(contentsOf: file, encoding: .utf8))["panels"]?.array ?? []
      return panels.flatMap { ($0["targets"]?.array ?? []).compactMap { $0["expr"]?.string } }
        .map { $0.replacing("$job", with: "hub") }
    }

    @Test func `promtool finds no fault in the metrics of a gateway and a hub`() throws {
      let hub = try #require(rig.askHub("GET", "/metrics")).body
      let gateway = try #require(rig.control("GET", "/metrics")).body
      for (name, body) in [("hub", hub), ("gateway", gateway)] {
        let file = rig.scratch.write(name, String(decoding: body, as: UTF8.self))
        let check = try Program("/bin/sh", ["-c", "/usr/bin/promtool check metrics <\(file)"])
        #expect(try check.ended() == 0, "\(name): \(check.lines)")
      }
    }

    @Test func `Prometheus stores the metrics, and answers each query of the dashboard and the documents`() throws {
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      let token = rig.scratch.write("scrape.token", Rig.token)
      let settings = rig.scratch.write(
        "prometheus.yml",
        """
        global: {scrape_interval: 1s}
        scrape_configs:
          - job_name: meshpost
            static_configs: [{targets: ["127.0.0.1:\(gatewayPort)"]}]
          - job_name: hub
            authorization: {credentials_file: \(token)}
            static_configs: [{targets: ["127.0.0.1:\(rig.hubPort)"]}]
        """)
      let server = try Program(
        "/usr/bin/prometheus",
        [
          "--config.file=\(settings)", "--storage.tsdb.path=\(rig.scratch.location("series"))",
          "--web.listen-address=127.0.0.1:\(port)",
        ])
      defer { server.kill9() }
      try server.line(with: "ready to receive web requests")
      func ask(_ question: String) throws -> [JSONValue] {
        let curl = try Program(
          "/usr/bin/curl",
          ["-s", "-w", "\n", "--data-urlencode", "query=\(question)", "http://127.0.0.1:\(port)/api/v1/query"])
        _ = try curl.ended()
        let answer = try JSONValue(parsing: curl.lines.joined())
        #expect(answer["status"]?.string == "success", "\(question): \(answer)")
        return answer["data"]?["result"]?.array ?? []
      }
      // A rate needs two values.
      for job in ["meshpost", "hub"] {
        try untilTrue("\(job) to be scraped: \(server.lines.suffix(5))") {
          try ask(#"sum_over_time(up{job="\#(job)"}[1m]) >= 3"#).count == 1
        }
      }
      let questions = try dashboard()
      #expect(questions.count >= 20)
      for question in questions { #expect(try !ask(question).isEmpty, "\(question)") }
      let alerts = try documented()
      #expect(alerts.count >= 8, "\(alerts)")
      // Evaluates the compared expression: the comparison itself should be false.
      for alert in alerts {
        let compared = try #require(alert.firstMatch(of: /^(.*) (==|>|<) .*$/)).output.1
        #expect(try !ask(String(compared)).isEmpty, "\(alert)")
      }
    }
  }
}
