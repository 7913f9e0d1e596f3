// Curator's leader latch among so many clients in one process, as the registers paper ran it: the leader's connection ends without
// a word, and the time until another is told that it leads is printed. Arguments: servers, clients, session in ms, losses.

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.ClientCnxn;
import org.apache.zookeeper.ZooKeeper;

public class Latch {
  record Led(long nanos, Candidate by) {}

  static final String PATH = "/election";
  static final LinkedBlockingQueue<Led> news = new LinkedBlockingQueue<>();

  static CuratorFramework client(String servers, int session) {
    var client = CuratorFrameworkFactory.builder().connectString(servers).sessionTimeoutMs(session).connectionTimeoutMs(15_000)
        .retryPolicy(new ExponentialBackoffRetry(50, 29, 1_000)).build();
    client.start();
    return client;
  }

  static class Candidate {
    final CuratorFramework client;
    final LeaderLatch latch;
    volatile boolean leads;

    Candidate(String servers, int session) throws Exception {
      client = client(servers, session);
      latch = new LeaderLatch(client, PATH);
      latch.addListener(new LeaderLatchListener() {
        public void isLeader() {
          leads = true;
          news.add(new Led(System.nanoTime(), Candidate.this));
        }

        public void notLeader() {
          leads = false;
        }
      });
      latch.start();
    }

    // Its network thread stops and its socket closes; the servers are not told that the session ends.
    void die() throws Exception {
      ZooKeeper keeper = client.getZookeeperClient().getZooKeeper();
      Field connection = ZooKeeper.class.getDeclaredField("cnxn");
      connection.setAccessible(true);
      Method disconnect = ClientCnxn.class.getMethod("disconnect");
      disconnect.setAccessible(true);
      disconnect.invoke(connection.get(keeper));
    }
  }

  static void awaitCandidates(CuratorFramework admin, int count) throws Exception {
    long end = System.nanoTime() + 120_000_000_000L;
    while (admin.getChildren().forPath(PATH).size() != count) {
      if (System.nanoTime() > end) throw new Exception("not " + count + " candidates");
      Thread.sleep(20);
    }
  }

  public static void main(String[] args) throws Exception {
    String servers = args[0];
    int count = Integer.parseInt(args[1]), session = Integer.parseInt(args[2]), losses = Integer.parseInt(args[3]);
    var admin = client(servers, 10_000);
    admin.create().creatingParentsIfNeeded().forPath(PATH);
    List<Candidate> all = new ArrayList<>();
    for (int n = 0; n < count; n++) {
      all.add(new Candidate(servers, session));
      if (count > 100 && n % 20 == 19) Thread.sleep(100);
    }
    awaitCandidates(admin, count);
    var draw = new Random(1);
    for (int n = 0; n < losses; n++) {
      awaitCandidates(admin, count);
      Thread.sleep(500 + draw.nextInt(session));
      var leaders = all.stream().filter(candidate -> candidate.leads).toList();
      if (leaders.size() != 1) throw new Exception(leaders.size() + " leaders by their own word");
      Candidate lost = leaders.get(0);
      news.clear();
      long at = System.nanoTime();
      lost.die();
      Led next;
      do {
        next = news.poll(60, TimeUnit.SECONDS);
        if (next == null) throw new Exception("nobody leads after a minute");
      } while (next.by() == lost);
      System.out.printf("%d%n", (next.nanos() - at) / 1_000_000);
      System.out.flush();
      all.remove(lost);
      all.add(new Candidate(servers, session));
    }
    Runtime.getRuntime().halt(0);
  }
}
